// Moves the wall clock of a process by as many microseconds as the file named by LOCKSTEP_CLOCK says, which is mapped, so
// that the clock can jump while the process runs. The monotonic clock is left alone, as by a jump of NTP.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int64_t none;

__attribute__((constructor)) static void map_offset(void) {
	const char *path = getenv("LOCKSTEP_CLOCK");
	int file = path ? open(path, O_RDONLY) : -1;
	void *page = file >= 0 ? mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
	offset = page == MAP_FAILED ? &none : page;
	if (file >= 0)
		close(file);
}

static int64_t shifted(int64_t seconds, int64_t microseconds) {
	return seconds * 1000000 + microseconds + (offset ? *offset : 0);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	static int (*real)(struct timeval *, void *);
	if (!real)
		real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
	int result = real(tv, tz);
	int64_t now = shifted(tv->tv_sec, tv->tv_usec);
	tv->tv_sec = now / 1000000;
	tv->tv_usec = now % 1000000;
	return result;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
	static int (*real)(clockid_t, struct timespec *);
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, ts);
	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		int64_t now = shifted(ts->tv_sec, ts->tv_nsec / 1000);
		ts->tv_nsec = now % 1000000 * 1000 + ts->tv_nsec % 1000;
		ts->tv_sec = now / 1000000;
	}
	return result;
}

time_t time(time_t *out) {
	struct timeval tv;
	gettimeofday(&tv, NULL);
	if (out)
		*out = tv.tv_sec;
	return tv.tv_sec;
}
