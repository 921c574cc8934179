/* A product of two matrices, in tiles. Prints its time in milliseconds and the sum of the result.
 *
 * The elements are small whole numbers, so every order of adding them gives the same sum: a build with a wrong
 * result shows, and one that only rounds otherwise does not exist. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef TILE_I
#define TILE_I 16
#endif
#ifndef TILE_J
#define TILE_J 16
#endif
#ifndef TILE_K
#define TILE_K 16
#endif

#define N 384
#define REPEATS 3

static float a[N][N], b[N][N], c[N][N];

static int smaller(int x, int y) { return x < y ? x : y; }

static void multiply(void) {
    memset(c, 0, sizeof c);
    for (int i0 = 0; i0 < N; i0 += TILE_I)
        for (int k0 = 0; k0 < N; k0 += TILE_K)
            for (int j0 = 0; j0 < N; j0 += TILE_J) {
                int i1 = smaller(i0 + TILE_I, N), k1 = smaller(k0 + TILE_K, N), j1 = smaller(j0 + TILE_J, N);
                for (int i = i0; i < i1; i++)
                    for (int k = k0; k < k1; k++)
                        for (int j = j0; j < j1; j++)
                            c[i][j] += a[i][k] * b[k][j];
            }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec;
}

int main(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (float)((3 * i + 5 * j) % 7);
            b[i][j] = (float)((2 * i + j) % 5);
        }
    double best = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double begin = now();
        multiply();
        double took = now() - begin;
        if (took < best) best = took;
    }
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sum += c[i][j];
    printf("time %.4f ms\nsum %.0f\n", best, sum);
    return 0;
}
