/* Preloaded into a process: one of its calls that change a folder is harmed, and all of them can be written down.

   HARM_UNDER  only calls on what lies under this folder are looked at
   HARM_WHEN   and only once this file exists; unset: from the start
   HARM_CALLS  the names of those that count, "pwrite fdatasync"; unset: all that are defined below
   HARM_NTH    the call that is harmed, counted from 1; unset: none
   HARM_KIND   eio   it fails, later calls succeed: as on Linux after a write-back error was reported
               kill  the process is killed before it
               torn  the process is killed when half of a write is done
              slow  it and all later ones take HARM_MS milliseconds longer
              hang  it and all later ones do not return before HARM_WHEN is gone
   HARM_TRACE  a file that gets a line for each call: its number or 0, "harmed" or "done", its name, its path */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_named(const char *names, const char *name) {
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return 1;
    return 0;
}

static void trace(long number, const char *what, const char *call, const char *path) {
    const char *into = getenv("HARM_TRACE");
    int descriptor = into ? REAL(open64)(into, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (descriptor < 0) return;
    dprintf(descriptor, "%ld %s %s %s\n", number, what, call, path);
    close(descriptor);
}

static void rest(long ms) {
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

/* Spend the time that a slow disk takes, or one that hangs. */
static void linger(const char *harm, const char *when) {
    const char *ms = getenv("HARM_MS");
    if (strcmp(harm, "slow") == 0) rest(ms ? atol(ms) : 0);
    while (strcmp(harm, "hang") == 0 && when && !access(when, F_OK)) rest(10);
}

/* Whether this call is the one that fails. Does not return where the process is to be killed before it. */
static int strikes(const char *call, const char *path, int *tears) {
    static atomic_long calls;
    const char *under = getenv("HARM_UNDER"), *when = getenv("HARM_WHEN"), *counted = getenv("HARM_CALLS");
    const char *nth = getenv("HARM_NTH"), *harm = getenv("HARM_KIND");
    if (!under || strncmp(path, under, strlen(under)) || (when && access(when, F_OK))) return 0;
    long number = counted && !is_named(counted, call) ? 0 : atomic_fetch_add(&calls, 1) + 1;
    int lasts = harm && (strcmp(harm, "slow") == 0 || strcmp(harm, "hang") == 0);
    int struck = nth && harm && number && (number == atol(nth) || (lasts && number > atol(nth)));
    trace(number, struck ? "harmed" : "done", call, path);
    if (!struck) return 0;
    if (lasts) return linger(harm, when), 0;
    if (tears && strcmp(harm, "torn") == 0) return *tears = 1;
    if (strcmp(harm, "eio")) kill(getpid(), SIGKILL);
    errno = EIO;
    return 1;
}

static int strikes_open_file(const char *call, int descriptor, int *tears) {
    char link[64], path[PATH_MAX];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = '\0';
    return strikes(call, path, tears);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    int tears = 0;
    if (strikes_open_file("pwrite", descriptor, &tears)) {
        if (!tears) return -1;
        REAL(pwrite64)(descriptor, data, size / 2, offset);
        kill(getpid(), SIGKILL);
    }
    return REAL(pwrite64)(descriptor, data, size, offset);
}

int fdatasync(int descriptor) { return strikes_open_file("fdatasync", descriptor, NULL) ? -1 : REAL(fdatasync)(descriptor); }

int fsync(int descriptor) { return strikes_open_file("fsync", descriptor, NULL) ? -1 : REAL(fsync)(descriptor); }

int ftruncate64(int descriptor, off64_t size) {
    return strikes_open_file("ftruncate", descriptor, NULL) ? -1 : REAL(ftruncate64)(descriptor, size);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT && strikes("open", path, NULL)) return -1;
    return REAL(open64)(path, flags, mode);
}

int rename(const char *old, const char *new) { return strikes("rename", new, NULL) ? -1 : REAL(rename)(old, new); }

int unlink(const char *path) { return strikes("unlink", path, NULL) ? -1 : REAL(unlink)(path); }

int mkdir(const char *path, mode_t mode) { return strikes("mkdir", path, NULL) ? -1 : REAL(mkdir)(path, mode); }

int rmdir(const char *path) { return strikes("rmdir", path, NULL) ? -1 : REAL(rmdir)(path); }
