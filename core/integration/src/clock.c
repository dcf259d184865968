/* Preloaded into a server: its wall clock is off by what a file says, in seconds. Other clocks are right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("COHORT_TEST_CLOCK");
    if (result != 0 || clock != CLOCK_REALTIME || path == NULL)
        return (int)result;
    char text[32] = { 0 };
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    if (read(file, text, sizeof text - 1) > 0)
        time->tv_sec += atoll(text);
    close(file);
    return 0;
}
