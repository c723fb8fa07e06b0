// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loaded before Open MPI, counts the bytes that a rank receives in collectives
// and writes them to $KILN_TEST_COUNTS.RANK. Messages by which processes agree
// have a communicator of their own: the first that is used.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long long received;
static MPI_Comm agreement = MPI_COMM_NULL;

int MPI_Irecv(void *bytes, int count, MPI_Datatype type, int source, int tag,
              MPI_Comm communicator, MPI_Request *request) {
  int size;
  PMPI_Type_size(type, &size);
  if (agreement == MPI_COMM_NULL)
    agreement = communicator;
  if (communicator != agreement)
    received += (unsigned long long)count * size;
  return PMPI_Irecv(bytes, count, type, source, tag, communicator, request);
}

int MPI_Finalize(void) {
  char path[4096];
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(path, sizeof(path), "%s.%d", getenv("KILN_TEST_COUNTS"), rank);
  FILE *file = fopen(path, "w");
  fprintf(file, "%llu\n", received);
  fclose(file);
  return PMPI_Finalize();
}
