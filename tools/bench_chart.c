/* An SVG bar chart of the ratios to the peer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "output.h"

enum { LEFT = 250, WIDTH = 520, BAR = 18, PITCH = 24, TOP = 92, RIGHT = 90, BOTTOM = 44 };

static double ratio(const bench_row *r) {
  return r->seconds > 0 ? r->peer_seconds / r->seconds : 0;
}

static double largest(const bench_row *rows, int count) {
  double most = 1.25;
  for (int i = 0; i < count; i++)
    if (rows[i].peer_seconds > 0 && ratio(&rows[i]) > most) most = ratio(&rows[i]);
  return most;
}

static void draw_bar(FILE *f, const bench_row *r, int index, double scale) {
  const int y = TOP + index * PITCH;
  const double width = ratio(r) * scale;
  char name[32];
  fprintf(f,
          "<text x='%d' y='%d' text-anchor='end'>%s %s %" PRId64 " x %" PRId64 " x %" PRId64
          "</text>\n<rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'/>\n"
          "<text x='%.1f' y='%d' font-weight='bold'>%.2f</text>\n",
          LEFT - 8, y + 13, order_name(r->order), bench_row_name(r, name), r->m, r->n, r->k, LEFT,
          y, width, BAR, ratio(r) >= 1 ? "#2f7d4f" : "#b5662a", LEFT + width + 6, y + 13, ratio(r));
}

/* XML allows no bare & or <. */
static void put_text(FILE *f, const char *text) {
  for (; *text; text++) {
    if (*text == '&') fputs("&amp;", f);
    else if (*text == '<') fputs("&lt;", f);
    else fputc(*text, f);
  }
}

static void draw(FILE *f, const bench_row *rows, int count, const char *peer, const char *machine) {
  int bars = 0;
  const double scale = WIDTH / largest(rows, count);
  for (int i = 0; i < count; i++) bars += rows[i].peer_seconds > 0;
  const int width = LEFT + WIDTH + RIGHT, height = TOP + bars * PITCH + BOTTOM;
  fprintf(f,
          "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
          "font-family='Helvetica, Arial, sans-serif' font-size='13' fill='#222'>\n"
          "<rect width='%d' height='%d' fill='#ffffff'/>\n"
          "<text x='20' y='30' font-size='18' font-weight='bold'>detgemm, speed relative to %s"
          "</text>\n<text x='20' y='52' fill='#555'>",
          width, height, width, height, width, height, peer);
  put_text(f, machine);
  fprintf(f,
          "</text>\n<text x='20' y='72' fill='#555'>M x N x K; longer is faster; the line is "
          "%s = 1</text>\n",
          peer);
  for (int i = 0, index = 0; i < count; i++)
    if (rows[i].peer_seconds > 0) draw_bar(f, &rows[i], index++, scale);
  fprintf(f,
          "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#222' stroke-dasharray='4 3'/>\n"
          "<text x='%.1f' y='%d' text-anchor='middle'>1.0</text>\n</svg>\n",
          LEFT + scale, TOP - 6, LEFT + scale, height - BOTTOM, LEFT + scale, height - BOTTOM + 18);
}

bool bench_chart(const char *path, const bench_row *rows, int count, const char *peer,
                 const char *machine) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (f == NULL) return complain("no memory for the chart") == EXIT_GOOD;
  draw(f, rows, count, peer, machine);
  const bool good = fclose(f) == 0 && output_text(path, text);
  free(text);
  return good;
}
