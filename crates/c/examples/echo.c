/*
 * Two ends that know each other's keys, in one program for once: what one says the other says back.
 *
 *     cc -o echo echo.c $(pkg-config --cflags --libs anabranch) -lpthread
 */
#include <anabranch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(ptrdiff_t outcome, const char *what)
{
    if (outcome < 0) {
        fprintf(stderr, "%s: %s\n", what, anabranch_error());
        exit(1);
    }
}

/* Says back what the first caller says. */
static void *serve(void *argument)
{
    anabranch_endpoint *endpoint = argument;
    anabranch_stream *stream;
    char bytes[1000];
    ptrdiff_t count;

    check(anabranch_accept(endpoint, &stream, NULL), "accept");
    while ((count = anabranch_read(stream, bytes, sizeof bytes)) > 0) {
        ptrdiff_t written = 0;
        while (written < count) {
            ptrdiff_t taken = anabranch_write(stream, bytes + written, (size_t)(count - written));
            check(taken, "write");
            written += taken;
        }
    }
    check(count, "read");
    check(anabranch_finish(stream), "finish");
    anabranch_stream_free(stream);
    return NULL;
}

int main(void)
{
    anabranch_options near = {0}, far = {0};
    anabranch_endpoint *near_end, *far_end;
    anabranch_stream *stream;
    anabranch_standing standing;
    uint8_t far_key[ANABRANCH_KEY_LENGTH], near_key[ANABRANCH_KEY_LENGTH];
    char addresses[2000], answer[100];
    const char *address;
    pthread_t thread;
    size_t length = 0;
    ptrdiff_t count;

    check(anabranch_key_generate(near.private_key), "key");
    check(anabranch_key_generate(far.private_key), "key");
    check(anabranch_key_public(near.private_key, near_key), "key");
    check(anabranch_key_public(far.private_key, far_key), "key");

    far.admission = ANABRANCH_ADMIT_KEYS;
    far.admitted_keys = near_key;
    far.admitted_count = 1;
    check(anabranch_endpoint_open(&far, &far_end), "far end");
    check(anabranch_listen(far_end), "listen");
    pthread_create(&thread, NULL, serve, far_end);

    check(anabranch_endpoint_open(&near, &near_end), "near end");
    anabranch_endpoint_addresses(far_end, addresses, sizeof addresses);
    address = strtok(addresses, "\n");
    check(anabranch_connect(near_end, far_key, &address, 1, NULL, &stream), "connect");
    check(anabranch_write(stream, "hello", 5), "write");
    check(anabranch_finish(stream), "finish");
    while ((count = anabranch_read(stream, answer + length, sizeof answer - 1 - length)) > 0)
        length += (size_t)count;
    check(count, "read");
    answer[length] = 0;
    check(anabranch_stream_standing(stream, &standing), "standing");
    printf("%s over %s\n", answer, standing.adapter);

    pthread_join(thread, NULL);
    anabranch_stream_free(stream);
    anabranch_endpoint_close(near_end);
    anabranch_endpoint_close(far_end);
    anabranch_endpoint_free(near_end);
    anabranch_endpoint_free(far_end);
    return 0;
}
