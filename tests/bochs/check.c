/* Shows that the emulated processor has what it was chosen for and computes right:
 * each instruction's result is compared with a plain loop's.
 *
 *   check amx        AVX-512 VNNI, AVX-VNNI and AMX-INT8 must be there
 *   check avxvnni    AVX-VNNI must be there, AVX-512 and AMX must not
 *
 * The tiles are used by two threads in turn, which proves that the kernel switches
 * them. Build: gcc -O2 -static -pthread check.c
 */
#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static int failures;

static void expect(const char *what, int right)
{
    printf("%-40s %s\n", what, right ? "ok" : "WRONG");
    failures += !right;
}

/* Bytes of every value, the extremes among them; different for each seed. */
static void fill(uint8_t *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = i % 7 == 0 ? (i % 2 ? 0x80 : 0xff) : seed >> 24;
    }
}

/* sum[i] += four products of unsigned bytes of `a` and signed bytes of `b`. */
static void dot_loop(int32_t *sum, const uint8_t *a, const uint8_t *b, int lanes)
{
    for (int i = 0; i < lanes; i++)
        for (int j = 0; j < 4; j++)
            sum[i] += (int)a[4 * i + j] * (int8_t)b[4 * i + j];
}

__attribute__((target("avx2"))) static void vex_dot(int32_t *sum, const uint8_t *a, const uint8_t *b)
{
    __m256i s = _mm256_loadu_si256((void *)sum), x = _mm256_loadu_si256((void *)a),
            y = _mm256_loadu_si256((void *)b);
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(s) : "x"(x), "x"(y));
    _mm256_storeu_si256((void *)sum, s);
}

__attribute__((target("avx512f"))) static void evex_dot(int32_t *sum, const uint8_t *a, const uint8_t *b)
{
    __m512i s = _mm512_loadu_si512(sum), x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(x), "v"(y));
    _mm512_storeu_si512(sum, s);
}

static void check_dot(const char *what, void (*dot)(int32_t *, const uint8_t *, const uint8_t *), int lanes)
{
    int right = 1;
    for (uint32_t seed = 0; seed < 100; seed++) {
        uint8_t a[64], b[64];
        int32_t sum[16], wanted[16];
        fill(a, sizeof a, seed);
        fill(b, sizeof b, seed + 1000);
        fill((uint8_t *)sum, sizeof sum, seed + 2000);
        for (int i = 0; i < 16; i++)
            sum[i] >>= 4;
        memcpy(wanted, sum, sizeof sum);
        dot(sum, a, b);
        dot_loop(wanted, a, b, lanes);
        right &= memcmp(sum, wanted, sizeof sum) == 0;
    }
    expect(what, right);
}

struct tiles {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed));

/* ROWS x COLUMNS sums of products over 64 bytes, by tiles and by loops. In `b` four
 * rows' bytes stand together, as TDP* wants them. Other threads run meanwhile. */
static int tiles_right(int rows, int columns, int is_signed, uint32_t seed)
{
    uint8_t a[16 * 64], b[16 * 64];
    int32_t sum[16 * 16] = {0}, wanted[16 * 16] = {0};
    fill(a, sizeof a, seed);
    fill(b, sizeof b, seed + 1000);
    struct tiles shape = {.palette = 1, .row_bytes = {4 * columns, 64, 4 * columns}, .rows = {rows, rows, 16}};

    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
    __asm__ volatile("tilezero %%tmm0\n\t"
                     "tileloadd (%0,%2), %%tmm1\n\t"
                     "tileloadd (%1,%2), %%tmm2" ::"r"(a), "r"(b), "r"(64L) : "memory");
    for (int i = 0; i < 3; i++)
        sched_yield();
    if (is_signed)
        __asm__ volatile("tdpbssd %tmm2, %tmm1, %tmm0");
    else
        __asm__ volatile("tdpbusd %tmm2, %tmm1, %tmm0");
    for (int i = 0; i < 3; i++)
        sched_yield();
    __asm__ volatile("tilestored %%tmm0, (%0,%1)\n\ttilerelease" ::"r"(sum), "r"(64L) : "memory");

    for (int m = 0; m < rows; m++)
        for (int n = 0; n < columns; n++)
            for (int k = 0; k < 64; k++) {
                int x = is_signed ? (int8_t)a[64 * m + k] : a[64 * m + k];
                wanted[16 * m + n] += x * (int8_t)b[64 * (k / 4) + 4 * n + k % 4];
            }
    return memcmp(sum, wanted, sizeof sum) == 0;
}

static void *tile_thread(void *seed)
{
    intptr_t right = 1;
    for (int round = 0; round < 60; round++)
        right &= tiles_right(1 + round % 16, 16 - round % 13, round % 2, (uintptr_t)seed + round);
    return (void *)right;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int amx = strcmp(arguments[1], "amx") == 0;

    unsigned a, b, c, d, features, more;
    __cpuid_count(7, 0, a, b, c, d);
    features = b, more = c;
    expect("AVX-512F in CPUID as expected", (features >> 16 & 1) == (unsigned)amx);
    expect("AVX-512 VNNI in CPUID as expected", (more >> 11 & 1) == (unsigned)amx);
    expect("AMX-TILE, AMX-INT8 in CPUID as expected", (d >> 24 & 3) == (amx ? 3 : 0));
    __cpuid_count(7, 1, a, b, c, d);
    expect("AVX-VNNI in CPUID", a >> 4 & 1);

    check_dot("{vex} vpdpbusd, 256 bits", vex_dot, 8);
    if (amx) {
        check_dot("vpdpbusd, 512 bits", evex_dot, 16);
        __cpuid_count(0x1d, 1, a, b, c, d);
        expect("8 tiles of 16 rows of 64 bytes", a == (1024u << 16 | 8192) && b == (8u << 16 | 64) && c == 16);
        int permitted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
        expect("the kernel permits the use of tiles", permitted);
        if (permitted) {
            pthread_t other;
            void *right;
            pthread_create(&other, NULL, tile_thread, (void *)500);
            expect("tdpbssd, tdpbusd in the first thread", tile_thread((void *)900) != NULL);
            pthread_join(other, &right);
            expect("tdpbssd, tdpbusd in the second thread", right != NULL);
        }
    }
    return failures != 0;
}
