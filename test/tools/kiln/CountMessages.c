// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loaded before Open MPI, counts the bytes that a rank receives and sends by
// the name of the collective, and writes lines of "RECEIVED SENT NAME" to
// $KILN_TEST_COUNTS.RANK.
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most = 1024 };
static struct {
  char name[128];
  unsigned long long received, sent;
} collectives[most];
static int collective_count, current;

// Says whose messages come next; called from one thread at a time.
int MPI_Pcontrol(const int level, ...) {
  (void)level;
  va_list arguments;
  va_start(arguments, level);
  const char *name = va_arg(arguments, const char *);
  size_t length = va_arg(arguments, size_t);
  va_end(arguments);
  if (length >= sizeof(collectives->name))
    abort();
  for (current = 0; current < collective_count; ++current)
    if (strlen(collectives[current].name) == length &&
        memcmp(collectives[current].name, name, length) == 0)
      return MPI_SUCCESS;
  if (collective_count == most)
    abort();
  memcpy(collectives[collective_count++].name, name, length);
  return MPI_SUCCESS;
}

static unsigned long long bytes_of(int count, MPI_Datatype type) {
  int size;
  PMPI_Type_size(type, &size);
  return (unsigned long long)count * size;
}

int MPI_Irecv(void *bytes, int count, MPI_Datatype type, int source, int tag,
              MPI_Comm communicator, MPI_Request *request) {
  collectives[current].received += bytes_of(count, type);
  return PMPI_Irecv(bytes, count, type, source, tag, communicator, request);
}

int MPI_Isend(const void *bytes, int count, MPI_Datatype type, int target,
              int tag, MPI_Comm communicator, MPI_Request *request) {
  // A roll call's questions and answers are of characters.
  if (type == MPI_BYTE)
    collectives[current].sent += bytes_of(count, type);
  return PMPI_Isend(bytes, count, type, target, tag, communicator, request);
}

int MPI_Finalize(void) {
  char path[4096];
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(path, sizeof(path), "%s.%d", getenv("KILN_TEST_COUNTS"), rank);
  FILE *file = fopen(path, "w");
  for (int i = 0; i < collective_count; ++i)
    fprintf(file, "%llu %llu %s\n", collectives[i].received,
            collectives[i].sent, collectives[i].name);
  fclose(file);
  return PMPI_Finalize();
}
