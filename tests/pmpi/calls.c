/* A tool of MPI's profiling interface, as mpiP and Score-P are: preloaded, it counts the calls that
 * the program makes of MPI, and rank 0 writes them to the file that CALLS names. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(name, params, args)   \
    static long calls_of_##name;    \
    int MPI_##name params {         \
        calls_of_##name++;          \
        return PMPI_##name args;    \
    }
COUNT(Ialltoallv,
      (const void *s, const int sc[], const int sd[], MPI_Datatype st, void *r, const int rc[],
       const int rd[], MPI_Datatype rt, MPI_Comm c, MPI_Request *q),
      (s, sc, sd, st, r, rc, rd, rt, c, q))
COUNT(Iallreduce,
      (const void *s, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *q),
      (s, r, n, t, o, c, q))
COUNT(Isend,
      (const void *s, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *q),
      (s, n, t, to, tag, c, q))
COUNT(Testsome, (int n, MPI_Request q[], int *out, int at[], MPI_Status s[]), (n, q, out, at, s))
COUNT(Init_thread, (int *argc, char ***argv, int want, int *got), (argc, argv, want, got))

int MPI_Finalize(void) {
    int rank = 0;
    FILE *to = NULL;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && getenv("CALLS") != NULL && (to = fopen(getenv("CALLS"), "w")) != NULL) {
        fprintf(to, "Init_thread %ld\nIalltoallv %ld\nIallreduce %ld\nIsend %ld\nTestsome %ld\n",
                calls_of_Init_thread, calls_of_Ialltoallv, calls_of_Iallreduce, calls_of_Isend,
                calls_of_Testsome);
        fclose(to);
    }
    return PMPI_Finalize();
}
