/* Preloaded into a process: the n-th fdatasync of a file under FAIL_UNDER fails with EIO, once the file FAIL_WHEN exists.

   Later calls succeed again, as they do on Linux after a write-back error was reported: whoever tries again is told that all is well. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lies_under(int descriptor, const char *folder) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = '\0';
    return strncmp(path, folder, strlen(folder)) == 0;
}

int fdatasync(int descriptor) {
    static atomic_long calls;
    const char *under = getenv("FAIL_UNDER"), *when = getenv("FAIL_WHEN"), *nth = getenv("FAIL_NTH");
    if (under && when && nth && lies_under(descriptor, under) && access(when, F_OK) == 0 && atomic_fetch_add(&calls, 1) + 1 == atol(nth)) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(descriptor);
}
