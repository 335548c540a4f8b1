/*
 * The recorder: an LD_PRELOAD library that logs what a process does to the files below one folder.
 *
 *   RECORD_DIR      the watched folder (an absolute path, without symlinks)
 *   RECORD_LOG      the log, outside of it; appended to, so that several processes in turn share one
 *   RECORD_SYNC_US  how long every sync takes; a sync in memory costs nothing, and then no two
 *                   commits would ever gather
 *
 * Every change is logged after it was made and under one lock, so the log is a true order: whatever
 * a thread did because of a change stands behind it. A sync has two records: what was written before
 * its begin is durable from its end on, and a power cut may come in between. record_mark() puts the
 * caller's own words into the same order.
 *
 * Memory maps can't be seen. SQLite's -shm file is one, but it is no durable state: it is not
 * recorded. Any other writable map of a watched file is logged as trouble, and so is everything else
 * that this library knows it can't follow. The reader of the log compares its own picture of the
 * folder with the real one, which shows what got past us.
 *
 * System calls are made directly: nothing here can call itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The same numbers stand in log.py. */
enum {
    BEGIN = 1,
    CREATE,
    MKDIR,
    WRITE,
    TRUNCATE,
    ALLOCATE,
    UNLINK,
    RENAME,
    LINK,
    SYNC_BEGIN,
    SYNC_END,
    MARK,
    TROUBLE
};

struct header {
    uint32_t kind;
    uint32_t path_bytes;
    uint64_t data_bytes;
    uint64_t inode;
    int64_t a;
};

#define FDS 4096
enum { UNKNOWN = 0, IGNORED, WATCHED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_bytes;
static int log_fd = -1;
static long sync_us;
static int64_t syncs;
static unsigned char fds[FDS];

/* Logging */

/* The caller may hold the lock. */
static void die(const char *why) {
    static const char prefix[] = "recorder: ";
    syscall(SYS_write, 2, prefix, sizeof prefix - 1);
    syscall(SYS_write, 2, why, strlen(why));
    syscall(SYS_write, 2, "\n", 1);
    syscall(SYS_exit_group, 99);
}

static void put(const void *data, size_t bytes) {
    const char *at = data;
    while (bytes) {
        long done = syscall(SYS_write, log_fd, at, bytes);
        if (done < 0) {
            if (errno == EINTR) continue;
            die("the log can't be written");
        }
        at += done;
        bytes -= done;
    }
}

/* The caller holds the lock. */
static void record(int kind, uint64_t inode, int64_t a, const char *path, const void *data,
                   size_t bytes) {
    if (log_fd < 0) return;
    int saved = errno;
    struct header head = {kind, path ? strlen(path) : 0, bytes, inode, a};
    put(&head, sizeof head);
    if (path) put(path, head.path_bytes);
    if (bytes) put(data, bytes);
    errno = saved;
}

static void trouble(const char *what) { record(TROUBLE, 0, 0, NULL, what, strlen(what)); }

void record_mark(const void *data, size_t bytes) {
    pthread_mutex_lock(&lock);
    record(MARK, 0, 0, NULL, data, bytes);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void begin(void) {
    const char *dir = getenv("RECORD_DIR"), *log = getenv("RECORD_LOG");
    const char *us = getenv("RECORD_SYNC_US");
    if (!dir || !log) return;
    if (strlen(dir) >= PATH_MAX) die("RECORD_DIR is too long");
    strcpy(root, dir);
    root_bytes = strlen(root);
    sync_us = us ? atol(us) : 0;
    log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) die("RECORD_LOG can't be opened");
    int high = syscall(SYS_fcntl, log_fd, F_DUPFD_CLOEXEC, 1000); /* out of everybody's way */
    if (high >= 0) {
        syscall(SYS_close, log_fd);
        log_fd = high;
    }
    struct stat found;
    if (stat(root, &found)) die("RECORD_DIR is not there");
    record(BEGIN, found.st_ino, getpid(), root, NULL, 0);
}

/* Which files */

static int below(const char *path) {
    size_t bytes = strlen(path);
    if (log_fd < 0 || strncmp(path, root, root_bytes)) return 0;
    if (path[root_bytes] != '/' && path[root_bytes] != 0) return 0;
    return bytes < 4 || strcmp(path + bytes - 4, "-shm");
}

static int path_of(int fd, char *path) {
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    long bytes = syscall(SYS_readlink, name, path, PATH_MAX - 1);
    if (bytes < 0) return -1;
    path[bytes] = 0;
    return 0;
}

/* Looked up at the first use of a descriptor: it may be a copy, or inherited. */
static int watched(int fd) {
    if (log_fd < 0 || fd < 0 || fd == log_fd) return 0;
    if (fd >= FDS) die("too many descriptors");
    if (fds[fd] == UNKNOWN) {
        char path[PATH_MAX];
        int saved = errno;
        fds[fd] = !path_of(fd, path) && below(path) ? WATCHED : IGNORED;
        errno = saved;
    }
    return fds[fd] == WATCHED;
}

static void forget(int fd) {
    if (fd >= 0 && fd < FDS) fds[fd] = UNKNOWN;
}

static uint64_t inode_of(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

/* An absolute path without symlinks in its folders; 0 when it is not watched. */
static int resolve(int at, const char *name, char *path) {
    char joined[PATH_MAX], folder[PATH_MAX];
    if (log_fd < 0 || !name) return 0;
    int saved = errno, inside = 0;
    if (name[0] == '/') {
        if (strlen(name) >= PATH_MAX) goto out;
        strcpy(joined, name);
    } else {
        if (at == AT_FDCWD ? !getcwd(folder, sizeof folder) : path_of(at, folder)) goto out;
        if (snprintf(joined, sizeof joined, "%s/%s", folder, name) >= PATH_MAX) goto out;
    }
    size_t bytes = strlen(joined);
    while (bytes > 1 && joined[bytes - 1] == '/') joined[--bytes] = 0;
    char *last = strrchr(joined, '/');
    if (last == joined) goto out;
    *last = 0;
    if (!realpath(joined, folder)) goto out;
    if (snprintf(path, PATH_MAX, "%s/%s", folder, last + 1) >= PATH_MAX) goto out;
    inside = below(path);
out:
    errno = saved;
    return inside;
}

/* Opening */

static int do_open(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    struct stat before;
    if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(at, name, path)) {
        if (log_fd >= 0 && (flags & O_TMPFILE) == O_TMPFILE && resolve(at, name, path)) {
            pthread_mutex_lock(&lock);
            trouble("O_TMPFILE");
            pthread_mutex_unlock(&lock);
        }
        int fd = syscall(SYS_openat, at, name, flags, mode);
        forget(fd);
        return fd;
    }
    pthread_mutex_lock(&lock);
    int there = !stat(path, &before);
    int fd = syscall(SYS_openat, at, name, flags, mode);
    forget(fd);
    if (fd >= 0 && !there) record(CREATE, inode_of(fd), 0, path, NULL, 0);
    if (fd >= 0 && there && flags & O_TRUNC) record(TRUNCATE, inode_of(fd), 0, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags)                                     \
    mode_t mode = 0;                                    \
    if ((flags) & (O_CREAT | O_TMPFILE)) {              \
        va_list rest;                                   \
        va_start(rest, flags);                          \
        mode = va_arg(rest, mode_t);                    \
        va_end(rest);                                   \
    }

#define OPEN(name)                                      \
    int name(const char *path, int flags, ...) {        \
        MODE(flags)                                     \
        return do_open(AT_FDCWD, path, flags, mode);    \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                    \
    int name(int at, const char *path, int flags, ...) { \
        MODE(flags)                                     \
        return do_open(at, path, flags, mode);          \
    }
OPENAT(openat)
OPENAT(openat64)

int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) {
    return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

int close(int fd) {
    forget(fd);
    return syscall(SYS_close, fd);
}

int dup2(int from, int to) {
    forget(to);
    return syscall(SYS_dup2, from, to);
}

int dup3(int from, int to, int flags) {
    forget(to);
    return syscall(SYS_dup3, from, to, flags);
}

/* Writing */

ssize_t write(int fd, const void *data, size_t bytes) {
    if (!watched(fd)) return syscall(SYS_write, fd, data, bytes);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_write, fd, data, bytes);
    if (done > 0) {
        off_t end = syscall(SYS_lseek, fd, 0, SEEK_CUR);
        record(WRITE, inode_of(fd), end - done, NULL, data, done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) {
    if (!watched(fd)) return syscall(SYS_pwrite64, fd, data, bytes, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_pwrite64, fd, data, bytes, offset);
    if (done > 0) record(WRITE, inode_of(fd), offset, NULL, data, done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    return pwrite64(fd, data, bytes, offset);
}

/* Those below don't hand us their data: it is read back from the file. */
static void record_region(int fd, off64_t offset, size_t bytes) {
    char name[32], *data = malloc(bytes);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int in = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
    size_t done = 0;
    while (data && in >= 0 && done < bytes) {
        long got = syscall(SYS_pread64, in, data + done, bytes - done, offset + done);
        if (got <= 0) break;
        done += got;
    }
    if (done < bytes) trouble("a written region could not be read back");
    else record(WRITE, inode_of(fd), offset, NULL, data, bytes);
    if (in >= 0) syscall(SYS_close, in);
    free(data);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!watched(fd)) return syscall(SYS_writev, fd, parts, count);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_writev, fd, parts, count);
    if (done > 0) record_region(fd, syscall(SYS_lseek, fd, 0, SEEK_CUR) - done, done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
    __asm__("pwritev64v2");
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    if (!watched(fd)) return syscall(SYS_pwritev2, fd, parts, count, offset, 0, flags);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_pwritev2, fd, parts, count, offset, 0, flags);
    if (done > 0 && offset < 0) trouble("pwritev2 at the current offset");
    else if (done > 0) record_region(fd, offset, done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return pwritev64v2(fd, parts, count, offset, flags);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return pwritev64v2(fd, parts, count, offset, 0);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64v2(fd, parts, count, offset, 0);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t bytes) {
    if (!watched(out)) return syscall(SYS_sendfile, out, in, offset, bytes);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_sendfile, out, in, offset, bytes);
    if (done > 0) record_region(out, syscall(SYS_lseek, out, 0, SEEK_CUR) - done, done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t sendfile(int out, int in, off_t *offset, size_t bytes) {
    return sendfile64(out, in, offset, bytes);
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t bytes, unsigned flags) {
    if (!watched(out)) return syscall(SYS_copy_file_range, in, from, out, to, bytes, flags);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_copy_file_range, in, from, out, to, bytes, flags);
    off64_t end = to ? *to : syscall(SYS_lseek, out, 0, SEEK_CUR);
    if (done > 0) record_region(out, end - done, done);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate64(int fd, off64_t size) {
    if (!watched(fd)) return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_ftruncate, fd, size);
    if (!result) record(TRUNCATE, inode_of(fd), size, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *name, off64_t size) {
    char path[PATH_MAX];
    struct stat found;
    if (!resolve(AT_FDCWD, name, path)) return syscall(SYS_truncate, name, size);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_truncate, name, size);
    if (!result && !stat(path, &found)) record(TRUNCATE, found.st_ino, size, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}
int truncate(const char *name, off_t size) { return truncate64(name, size); }

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
    if (!watched(fd)) return syscall(SYS_fallocate, fd, mode, offset, bytes);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_fallocate, fd, mode, offset, bytes);
    if (!result && mode == 0) record(ALLOCATE, inode_of(fd), offset + bytes, NULL, NULL, 0);
    else if (!result && mode != FALLOC_FL_KEEP_SIZE) trouble("fallocate with a mode");
    pthread_mutex_unlock(&lock);
    return result;
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    return fallocate64(fd, mode, offset, bytes);
}
int posix_fallocate64(int fd, off64_t offset, off64_t bytes) {
    return fallocate64(fd, 0, offset, bytes) ? errno : 0;
}
int posix_fallocate(int fd, off_t offset, off_t bytes) {
    return posix_fallocate64(fd, offset, bytes);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset) {
    if (fd >= 0 && flags & MAP_SHARED && protection & PROT_WRITE && watched(fd)) {
        pthread_mutex_lock(&lock);
        trouble("a writable memory map");
        pthread_mutex_unlock(&lock);
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap64(at, bytes, protection, flags, fd, offset);
}

/* Names */

int unlinkat(int at, const char *name, int flags) {
    char path[PATH_MAX];
    if (!resolve(at, name, path)) return syscall(SYS_unlinkat, at, name, flags);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_unlinkat, at, name, flags);
    if (!result) record(UNLINK, 0, 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    struct stat found;
    int folder = !lstat(name, &found) && S_ISDIR(found.st_mode);
    return unlinkat(AT_FDCWD, name, folder ? AT_REMOVEDIR : 0);
}

int mkdirat(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    struct stat found;
    if (!resolve(at, name, path)) return syscall(SYS_mkdirat, at, name, mode);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_mkdirat, at, name, mode);
    if (!result && !stat(path, &found)) record(MKDIR, found.st_ino, 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char source[PATH_MAX], target[PATH_MAX];
    int out = resolve(from_at, from, source), in = resolve(to_at, to, target);
    if (!out && !in) return syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    if (!result && (!out || !in)) trouble("a rename across the border of the folder");
    else if (!result && flags & ~RENAME_NOREPLACE) trouble("a rename that exchanges");
    else if (!result) record(RENAME, 0, 0, source, target, strlen(target));
    pthread_mutex_unlock(&lock);
    return result;
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
    return renameat2(from_at, from, to_at, to, 0);
}
int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    char source[PATH_MAX], target[PATH_MAX];
    int out = resolve(from_at, from, source), in = resolve(to_at, to, target);
    if (!out && !in) return syscall(SYS_linkat, from_at, from, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_linkat, from_at, from, to_at, to, flags);
    if (!result && (!out || !in)) trouble("a link across the border of the folder");
    else if (!result) record(LINK, 0, 0, source, target, strlen(target));
    pthread_mutex_unlock(&lock);
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* Syncing */

static void pause_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    syscall(SYS_nanosleep, &time, NULL);
}

static int do_sync(int fd) {
    char path[PATH_MAX];
    pthread_mutex_lock(&lock);
    uint64_t inode = inode_of(fd);
    int64_t number = ++syncs;
    record(SYNC_BEGIN, inode, number, path_of(fd, path) ? NULL : path, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (sync_us) pause_us(sync_us);
    /* The real one is left out: the recorded folder is not meant to survive anything. */
    pthread_mutex_lock(&lock);
    record(SYNC_END, inode, number, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd) { return watched(fd) ? do_sync(fd) : syscall(SYS_fsync, fd); }
int fdatasync(int fd) { return watched(fd) ? do_sync(fd) : syscall(SYS_fdatasync, fd); }

/* These promise nothing about durability, or more than anybody should need: not recorded as syncs,
 * so that a store which relies on them is found out. */
int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
    return watched(fd) ? 0 : syscall(SYS_sync_file_range, fd, offset, bytes, flags);
}

/* Dying */

/* A process may end itself while its threads work, but never between a change and its record. The
 * lock is not let go of: the thread that waits for it ends here, too. */
void _exit(int status) {
    pthread_mutex_lock(&lock);
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}
