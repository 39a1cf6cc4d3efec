/* The first and only process of the emulated machine: runs one program, carries
 * its output and its exit status out, and switches the machine off.
 *
 * The program is /job/program; /job/arguments, /job/environment and /job/paths hold
 * strings, each ended by a NUL. The paths are the directory that the program runs in
 * and a file of text to carry out, if the program wrote one.
 *
 * Standard output leaves by the first parallel port, standard error by the second,
 * the file and the exit status as lines on port 0xe9; the emulator ends when it
 * reads "Shutdown" on port 0x8900. Ports are used directly, because a serial line's
 * emulated speed would hold up a program that prints much.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LPT1 = 0x378, LPT2 = 0x278, REPORT = 0xe9, POWER = 0x8900 };

static _Noreturn void finish(const char *what, int status)
{
    char line[200];
    int length = snprintf(line, sizeof line, "\n%s: %d\n", what, status);
    outsb(REPORT, line, length);
    outsb(POWER, "Shutdown", 8);
    for (;;)
        pause();
}

static _Noreturn void fail(const char *what)
{
    finish(what, errno);
}

/* The strings of a file, each ended by a NUL, as a vector ended by NULL. */
static char **strings(const char *path)
{
    struct stat info;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &info) != 0)
        fail(path);
    char *text = malloc(info.st_size + 1);
    if (text == NULL || read(file, text, info.st_size) != info.st_size)
        fail(path);
    close(file);

    char **vector = calloc(info.st_size + 1, sizeof *vector);
    if (vector == NULL)
        fail(path);
    size_t count = 0;
    for (char *at = text; at < text + info.st_size; at += strlen(at) + 1)
        vector[count++] = at;
    return vector;
}

/* One byte through a parallel port: the data, then the strobe line down and up. */
static void print(int port, const char *bytes, ssize_t count)
{
    for (ssize_t i = 0; i < count; i++) {
        outb(bytes[i], port);
        outb(0x0d, port + 2);
        outb(0x0c, port + 2);
    }
}

/* The file's text between two marks. No file, no marks. */
static void report_file(const char *path)
{
    static char bytes[65536];
    ssize_t count;
    int file = open(path, O_RDONLY);
    if (file < 0)
        return;
    outsb(REPORT, "\nfile begins\n", 13);
    while ((count = read(file, bytes, sizeof bytes)) > 0)
        outsb(REPORT, bytes, count);
    outsb(REPORT, "\nfile ends\n", 11);
}

int main(void)
{
    if (iopl(3) != 0)
        return 1;
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mkdir("/dev", 0755);
    mkdir("/tmp", 01777);
    if (mount("proc", "/proc", "proc", 0, NULL) != 0 || mount("sys", "/sys", "sysfs", 0, NULL) != 0 ||
        mount("dev", "/dev", "devtmpfs", 0, NULL) != 0)
        fail("mount");
    outb(0x0c, LPT1 + 2);
    outb(0x0c, LPT2 + 2);

    char **arguments = strings("/job/arguments"), **environment = strings("/job/environment");
    char **paths = strings("/job/paths");
    if (chdir(paths[0]) != 0)
        fail(paths[0]);
    int out[2], err[2];
    if (pipe(out) != 0 || pipe(err) != 0)
        fail("pipe");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        close(null);
        close(out[0]);
        close(out[1]);
        close(err[0]);
        close(err[1]);
        iopl(0);
        execve("/job/program", arguments, environment);
        dprintf(2, "%s: %s\n", arguments[0], strerror(errno));
        _exit(127);
    }
    close(out[1]);
    close(err[1]);

    struct pollfd ends[2] = {{.fd = out[0], .events = POLLIN}, {.fd = err[0], .events = POLLIN}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        if (poll(ends, 2, -1) < 0)
            fail("poll");
        for (int i = 0; i < 2; i++) {
            static char bytes[65536];
            if (ends[i].revents == 0)
                continue;
            ssize_t count = read(ends[i].fd, bytes, sizeof bytes);
            if (count > 0)
                print(i == 0 ? LPT1 : LPT2, bytes, count);
            else
                ends[i].fd = -1;
        }
    }

    int status;
    if (waitpid(child, &status, 0) != child)
        fail("wait");
    if (paths[1] != NULL)
        report_file(paths[1]);
    finish("exit status", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
