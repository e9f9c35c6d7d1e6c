/* Counts the calls that change which files there are, and ends its process by SIGKILL right before the n-th.

   Loaded by LD_PRELOAD; system_calls.py arms it.  Calls of all threads count. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long count, deadly;

/* The process ends before its n-th call from now on; 0: it does not. */
void arm(long n) {
  atomic_store(&count, 0);
  atomic_store(&deadly, n);
}

static void before(const char *name) {
  long n = atomic_load(&deadly);
  if (n && atomic_fetch_add(&count, 1) + 1 == n) {
    char line[64];
    int size = snprintf(line, sizeof line, "killed before %s\n", name);
    if (write(2, line, size)) kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  if (n && atomic_load(&count) > n) for (;;) pause(); /* another thread is ending the process */
}

#define WRAP(name, parameters, arguments)                    \
  int name parameters {                                      \
    static int(*real) parameters;                            \
    if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name); \
    before(#name);                                           \
    return real arguments;                                   \
  }

WRAP(rename, (const char *a, const char *b), (a, b))
WRAP(renameat, (int d, const char *a, int e, const char *b), (d, a, e, b))
WRAP(renameat2, (int d, const char *a, int e, const char *b, unsigned f), (d, a, e, b, f))
WRAP(link, (const char *a, const char *b), (a, b))
WRAP(linkat, (int d, const char *a, int e, const char *b, int f), (d, a, e, b, f))
WRAP(mkdir, (const char *a, mode_t m), (a, m))
WRAP(mkdirat, (int d, const char *a, mode_t m), (d, a, m))
WRAP(rmdir, (const char *a), (a))
WRAP(unlink, (const char *a), (a))
WRAP(unlinkat, (int d, const char *a, int f), (d, a, f))
WRAP(fsync, (int d), (d))
WRAP(fdatasync, (int d), (d))
WRAP(ftruncate, (int d, off_t n), (d, n))
