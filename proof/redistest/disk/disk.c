// Tells the file named by LOCKSTEP_DISK how much of each file has come to the disk, so that a test can take away the rest, as a
// power cut does. A file is known by its inode, which it keeps when it is renamed; when it is removed, what was told of it
// counts no more, since another file may be given the number. Each record is one write to the end of the file, so that threads
// and forked children do not mix theirs. Writes are left alone: files are only appended to, and what counts is how long one is
// when it is synced.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { synced = 1, shortened = 2, removed = 3 }; // as in disk.go

static int journal = -1;

__attribute__((constructor)) static void open_journal(void) {
	const char *path = getenv("LOCKSTEP_DISK");
	if (path && (journal = open(path, O_WRONLY | O_APPEND | O_CLOEXEC)) < 0)
		abort(); // everything would be taken for lost
}

static void tell(int64_t what, ino_t inode, int64_t length) {
	int64_t record[3] = {what, (int64_t)inode, length};
	int error = errno;
	if (journal >= 0 && write(journal, record, sizeof record) != sizeof record)
		abort();
	errno = error;
}

// What is written while a sync is under way may miss it, so the length counts that the file had before.
static int sync_and_tell(int (*real)(int), int file) {
	struct stat before;
	int known = fstat(file, &before) == 0 && S_ISREG(before.st_mode);
	int result = real(file);
	if (result == 0 && known)
		tell(synced, before.st_ino, before.st_size);
	return result;
}

int fsync(int file) {
	static int (*real)(int);
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	return sync_and_tell(real, file);
}

int fdatasync(int file) {
	static int (*real)(int);
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	return sync_and_tell(real, file);
}

static void tell_shortened(int known, const struct stat *file, off_t length) {
	if (known)
		tell(shortened, file->st_ino, length);
}

int ftruncate64(int file, off64_t length) {
	static int (*real)(int, off64_t);
	if (!real)
		real = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
	struct stat s;
	tell_shortened(fstat(file, &s) == 0, &s, length);
	return real(file, length);
}

int truncate64(const char *path, off64_t length) {
	static int (*real)(const char *, off64_t);
	if (!real)
		real = (int (*)(const char *, off64_t))dlsym(RTLD_NEXT, "truncate64");
	struct stat s;
	tell_shortened(stat(path, &s) == 0, &s, length);
	return real(path, length);
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }
int truncate(const char *path, off_t length) { return truncate64(path, length); }

// Before it is gone: its number may be given away at once.
static void tell_removed(const char *path) {
	struct stat s;
	if (lstat(path, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 1)
		tell(removed, s.st_ino, 0);
}

int unlink(const char *path) {
	static int (*real)(const char *);
	if (!real)
		real = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
	tell_removed(path);
	return real(path);
}

int rename(const char *from, const char *to) {
	static int (*real)(const char *, const char *);
	if (!real)
		real = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
	tell_removed(to);
	return real(from, to);
}
