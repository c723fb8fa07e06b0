// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/config/Schema.h"
#include "compiler/config/Spelling.h"
#include "tools/kiln/Commands.h"

#include <cstdio>

namespace kiln {

std::string mainHelp() {
  return R"(kiln compiles the training of a neural network once and then runs it.

  kiln train CONFIG [key=value ...]        compile if needed, then run
  kiln compile CONFIG -o MODEL.kiln        compile to an artifact
  kiln run MODEL.kiln                      run an artifact
  kiln verify CONFIG [--plans all|N]       train under many plans, compare losses
  kiln inspect MODEL.kiln|CHECKPOINT       show plan, memory, kernels, variables
  kiln checkpoint [list|verify|diff|export] look after what runs have saved
  kiln cache [list|size|clear]             look after compiled artifacts
  kiln doctor                              check this machine
  kiln help [config|env|exit-codes]        what can be set, and what it means

Examples:
  kiln train models/configs/tiny.yaml
  kiln train models/configs/tiny.yaml training.steps=50 devices.threads=1
  kiln compile models/configs/minigpt.yaml -o m.kiln
  kiln run m.kiln --steps 10 --profile
  kiln run -n 4 m.kiln

kiln VERB --help lists the options of a verb; kiln --version prints the version.
)";
}

static const char environmentHelp[] =
    R"(KILN_CACHE_DIR          folder of compiled artifacts and temporary files
XDG_CACHE_HOME          else they are in $XDG_CACHE_HOME/kiln, or ~/.cache/kiln
KILN_COMPILER_LIBRARY   path of libKilnCompiler.so, if not beside the command
KILN_COLLECTIVE_TIMEOUT seconds after which a device or process that does not
                        come to a collective is given up, 300
KILN_FAULT              for tests: link:delay_us=N makes links slower
TMPDIR                  for temporary files, if the cache folder is unusable,
                        and those of Open MPI
)";

static const char exitCodeHelp[] = R"( 0  done
 1  failed
 2  usage or config
 3  no plan fits, or out of memory
 4  input rejected: artifact, checkpoint, weights, model or data
 5  I/O: disk full, file not writable
 6  a rank was lost, under `kiln run -n`
 7  a collective timed out; the device or rank that did not come is named
 8  loss, gradient or weights not finite; a report is in the run folder
 9  verification failed: a plan has other losses than one device
70  internal compiler error; a reproducer is in crash/
75  stopped by a signal with a checkpoint written
128+n  stopped by signal n
)";

int runHelpCommand(const std::string &topic) {
  if (topic.empty())
    fputs(mainHelp().c_str(), stdout);
  else if (topic == "config")
    fputs(describeSchema().c_str(), stdout);
  else if (topic == "env")
    fputs(environmentHelp, stdout);
  else if (topic == "exit-codes")
    fputs(exitCodeHelp, stdout);
  else {
    printError("unknown topic '" + topic +
               "', wanted config, env or exit-codes" +
               didYouMean(nearestWord(topic, {"config", "env", "exit-codes"})));
    return exitUsage;
  }
  return 0;
}

} // namespace kiln
