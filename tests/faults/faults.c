/*
 * Faults: an LD_PRELOAD library that makes the disk under one database fail, without root.
 *
 *   FAULTS_DATABASE  the database file (an absolute path); its log, its memory map and its folder
 *                    are known by their names
 *   FAULTS_CONTROL   a file with the numbers of `struct control`, mapped by whoever wants to set or
 *                    read them, also while the process runs
 *
 * There are two kinds of faults. A point (the writes, syncs or reads of one file) fails with EIO
 * from its n-th call on, for a number of calls; a write that fails has written its first half. And
 * there is a quota: the files can't grow beyond it. What doesn't fit is not written (ENOSPC), what
 * fits in part is written in part, and statvfs says what is left.
 *
 * System calls are made directly: nothing here can call itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The same order and numbers stand in control.py. */
enum file { DATABASE, LOG, FOLDER, MAP, FILES };
enum operation { WRITE, SYNC, READ, OPERATIONS };

struct point {
    int64_t calls;
    int64_t at;    /* the first call that fails, from 1 on; 0: none */
    int64_t times; /* how many fail; -1: all from there on */
};

struct control {
    int64_t quota; /* bytes; 0: as much as there is */
    int64_t sync_us;
    int64_t failed; /* calls that were answered with EIO */
    int64_t short_of_room; /* calls that were answered with ENOSPC, or done in part */
    int64_t most; /* bytes that the files ever took, while there was a quota */
    struct point points[FILES][OPERATIONS];
};

static struct control *control;
static char paths[FILES][PATH_MAX];

static void die(const char *why) {
    syscall(SYS_write, 2, why, strlen(why));
    syscall(SYS_exit_group, 99);
}

__attribute__((constructor)) static void begin(void) {
    const char *database = getenv("FAULTS_DATABASE"), *file = getenv("FAULTS_CONTROL");
    if (!database || !file) return;
    if (strlen(database) + 5 > PATH_MAX) die("faults: FAULTS_DATABASE is too long\n");
    strcpy(paths[DATABASE], database);
    strcat(strcpy(paths[LOG], database), "-wal");
    strcat(strcpy(paths[MAP], database), "-shm");
    strcpy(paths[FOLDER], database);
    char *slash = strrchr(paths[FOLDER], '/');
    if (!slash) die("faults: FAULTS_DATABASE is not absolute\n");
    *slash = 0;
    int fd = syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) die("faults: FAULTS_CONTROL can't be opened\n");
    void *at = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) die("faults: FAULTS_CONTROL can't be mapped\n");
    syscall(SYS_close, fd);
    control = at;
}

/* Which of our files a descriptor is; -1: none. */
static int file_of(int fd, struct stat *found) {
    struct stat ours;
    int saved = errno, file = -1;
    if (control && !fstat(fd, found) && !stat(paths[FOLDER], &ours) &&
        ours.st_dev == found->st_dev && (S_ISREG(found->st_mode) || S_ISDIR(found->st_mode)))
        for (int i = 0; i < FILES && file < 0; i++)
            if (!stat(paths[i], &ours) && ours.st_ino == found->st_ino &&
                ours.st_dev == found->st_dev)
                file = i;
    errno = saved;
    return file;
}

/* Counts a call; whether it is to fail. */
static int fails(int file, int operation) {
    struct point *point = &control->points[file][operation];
    int64_t call = __atomic_add_fetch(&point->calls, 1, __ATOMIC_SEQ_CST);
    int64_t at = point->at, times = point->times;
    if (!at || call < at || (times >= 0 && call >= at + times)) return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = EIO;
    return 1;
}

/* Room */

static int64_t room(void) {
    struct stat found;
    int64_t used = 0;
    for (int i = 0; i < FILES; i++)
        if (i != FOLDER && !stat(paths[i], &found)) used += found.st_size;
    return control->quota > used ? control->quota - used : 0;
}

/* How many of these bytes the disk takes. */
static size_t fitting(const struct stat *found, off64_t offset, size_t bytes) {
    int64_t growth = offset + (int64_t)bytes - found->st_size;
    if (growth <= 0 || !control->quota) return bytes;
    int64_t missing = growth - room(), used = control->quota - room() + growth;
    if (missing <= 0) {
        if (used > control->most) control->most = used;
        return bytes;
    }
    __atomic_add_fetch(&control->short_of_room, 1, __ATOMIC_SEQ_CST);
    return missing < (int64_t)bytes ? bytes - missing : 0;
}

#define STATVFS(name)                                                                \
    int name(const char *path, struct name *found) {                                 \
        int (*real)(const char *, struct name *) = dlsym(RTLD_NEXT, #name);          \
        int result = real(path, found);                                              \
        if (!result && control && control->quota && !strcmp(path, paths[FOLDER]))    \
            found->f_bfree = found->f_bavail = room() / found->f_frsize;             \
        return result;                                                               \
    }
STATVFS(statvfs)
STATVFS(statvfs64)

/* Writing */

static ssize_t put(int fd, const void *data, size_t bytes, off64_t offset, int here) {
    return here ? syscall(SYS_write, fd, data, bytes)
                : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

static ssize_t do_write(int fd, const void *data, size_t bytes, off64_t offset, int here) {
    struct stat found;
    int file = file_of(fd, &found);
    if (file < 0) return put(fd, data, bytes, offset, here);
    if (fails(file, WRITE)) {
        put(fd, data, bytes / 2, offset, here);
        errno = EIO;
        return -1;
    }
    size_t fits = fitting(&found, here ? syscall(SYS_lseek, fd, 0, SEEK_CUR) : offset, bytes);
    if (bytes && !fits) {
        errno = ENOSPC;
        return -1;
    }
    return put(fd, data, fits, offset, here);
}

ssize_t write(int fd, const void *data, size_t bytes) { return do_write(fd, data, bytes, 0, 1); }
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) {
    return do_write(fd, data, bytes, offset, 0);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    return do_write(fd, data, bytes, offset, 0);
}

/* Syncing */

static int do_sync(int fd, long number) {
    struct stat found;
    int file = file_of(fd, &found);
    if (file < 0) return syscall(number, fd);
    struct timespec time = {0, control->sync_us * 1000};
    if (control->sync_us) syscall(SYS_nanosleep, &time, NULL);
    return fails(file, SYNC) ? -1 : syscall(number, fd);
}

int fsync(int fd) { return do_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return do_sync(fd, SYS_fdatasync); }

/* Reading */

ssize_t read(int fd, void *data, size_t bytes) {
    struct stat found;
    int file = file_of(fd, &found);
    if (file >= 0 && fails(file, READ)) return -1;
    return syscall(SYS_read, fd, data, bytes);
}

ssize_t pread64(int fd, void *data, size_t bytes, off64_t offset) {
    struct stat found;
    int file = file_of(fd, &found);
    if (file >= 0 && fails(file, READ)) return -1;
    return syscall(SYS_pread64, fd, data, bytes, offset);
}
ssize_t pread(int fd, void *data, size_t bytes, off_t offset) {
    return pread64(fd, data, bytes, offset);
}
