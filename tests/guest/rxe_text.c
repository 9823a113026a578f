/* Commands and answers as text; see rxe_peer.c. */
#include "rxe_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ---- */

static char answer[1 << 18];
static size_t answered;

void say(const char *format, ...)
{
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(answer + answered, sizeof(answer) - answered, format, list);
	va_end(list);
	if (n > 0)
		answered += (size_t)n < sizeof(answer) - answered ? (size_t)n : sizeof(answer) - answered - 1;
}

void fail(const char *call, int number, const char *format, ...)
{
	va_list list;
	char text[256];

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	answered = 0;
	say("error %s %d%s%s", call, number, *text ? " " : "", text);
}

/* ---- arguments ---- */

static struct {
	int n;
	char *key[64], *value[64];
} args;
bool bad_args;

const char *text_arg(const char *key, const char *otherwise)
{
	for (int i = 0; i < args.n; i++)
		if (strcmp(args.key[i], key) == 0)
			return args.value[i];
	return otherwise;
}

void bad_arg(const char *key)
{
	if (!bad_args)
		fail("argument", EINVAL, "%s=%s", key, text_arg(key, "(not given)"));
	bad_args = true;
}

uint64_t number(const char *key, uint64_t otherwise)
{
	const char *value = text_arg(key, NULL);
	char *end;
	uint64_t n;

	if (!value)
		return otherwise;
	n = strtoull(value, &end, 0);
	if (end == value || *end)
		bad_arg(key);
	return n;
}

uint64_t needed(const char *key)
{
	if (!text_arg(key, NULL))
		bad_arg(key);
	return number(key, 0);
}

unsigned int letters_arg(const char *key, const char *otherwise, const char *letters, const unsigned int *bits)
{
	unsigned int sum = 0;

	for (const char *c = text_arg(key, otherwise); *c; c++) {
		const char *at = strchr(letters, *c);

		if (at)
			sum |= bits[at - letters];
		else if (*c != '-')
			bad_arg(key);
	}
	return sum;
}

unsigned int access_arg(const char *otherwise)
{
	static const unsigned int bits[] = { IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
					     IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND };

	return letters_arg("access", otherwise, "lwrab", bits);
}

struct qp *qp_arg(void)
{
	uint64_t i = needed("qp");

	if (i < MANY && qps[i].qp)
		return &qps[i];
	bad_arg("qp");
	return NULL;
}

struct mr *mr_arg(void)
{
	uint64_t i = needed("mr");

	if (i < MANY && mrs[i].mr)
		return &mrs[i];
	bad_arg("mr");
	return NULL;
}

bool places_arg(struct places *p)
{
	p->mr = mr_arg();
	p->off = number("off", 0);
	p->count = number("count", 1);
	if (bad_args)
		return false;
	p->len = number("len", p->off < p->mr->len && p->count == 1 ? p->mr->len - p->off : 0);
	p->step = number("step", p->len);
	if (p->off > p->mr->len || p->len > p->mr->len - p->off)
		bad_arg("len");
	else if (p->count > 1 && p->step && (p->mr->len - p->off - p->len) / p->step < p->count - 1)
		bad_arg("count");
	return !bad_args;
}

bool gid_arg(const char *key, union ibv_gid *gid)
{
	const char *value = text_arg(key, "");
	char mapped[64];

	snprintf(mapped, sizeof(mapped), "::ffff:%s", value);
	if (inet_pton(AF_INET6, value, gid->raw) != 1 && inet_pton(AF_INET6, mapped, gid->raw) != 1)
		bad_arg(key);
	return !bad_args;
}

/* ---- lines ---- */

void give_answer(void)
{
	answer[answered] = 0;
	puts(answer);
	fflush(stdout);
	answered = 0;
}

char *take_line(char *line, char **rest)
{
	char *verb, *word, *save;

	line[strcspn(line, "\r\n")] = 0;
	args.n = 0;
	bad_args = false;
	line += strspn(line, " ");
	*rest = strchr(line, ' ');
	*rest = strdup(*rest ? *rest : "");
	verb = strtok_r(line, " ", &save);
	while (verb && (word = strtok_r(NULL, " ", &save)) && args.n < 64) {
		char *value = strchr(word, '=');

		if (value)
			*value++ = 0;
		args.key[args.n] = word;
		args.value[args.n++] = value ? value : word + strlen(word);
	}
	return verb;
}
