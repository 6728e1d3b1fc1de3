/*
 * Virtual sockets: connections to a peer, known by its key, that outlive the network that they began on.
 *
 *     anabranch_endpoint *endpoint;
 *     anabranch_stream *stream;
 *     anabranch_endpoint_open(&options, &endpoint);
 *     anabranch_connect(endpoint, key, addresses, 1, NULL, &stream);
 *     anabranch_write(stream, "hello", 5);
 *
 * A whole program: examples/echo.c. What happens below: docs/virtual-sockets.md.
 *
 * All functions wait until they are done, and may be called from any thread; a stream serves one thread that reads and
 * one that writes at the same time. What a function makes is freed once, when no other call uses it any more.
 * Functions that return int return ANABRANCH_OK or an error below; anabranch_error() says it in words.
 */
#ifndef ANABRANCH_H
#define ANABRANCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when programs must be compiled anew. */
#define ANABRANCH_ABI 0

#define ANABRANCH_KEY_LENGTH 32
/* Largest datagram, bytes. */
#define ANABRANCH_MAX_DATAGRAM 1100
/* Room for the name of an adapter and its end. */
#define ANABRANCH_NAME_LENGTH 16

enum {
    ANABRANCH_OK = 0,
    /* An argument is null, too long or no address. */
    ANABRANCH_INVALID = -1,
    /* No adapter can be used, a port is taken, a file cannot be read. */
    ANABRANCH_SYSTEM = -2,
    /* The peer does not answer; no network has reached it for too long. */
    ANABRANCH_TIMED_OUT = -3,
    /* No address of the peer is known. */
    ANABRANCH_NO_ADDRESS = -4,
    /* The peer does not let this end in. */
    ANABRANCH_NOT_ADMITTED = -5,
    /* The peer takes no connections. */
    ANABRANCH_REFUSED = -6,
    /* The peer broke the protocol. */
    ANABRANCH_PROTOCOL = -7,
    /* The peer ended or reset the connection, or was started anew. */
    ANABRANCH_RESET = -8,
    /* This endpoint or direction is closed. */
    ANABRANCH_CLOSED = -9
};

/* Who may call. */
enum {
    ANABRANCH_ADMIT_NOBODY = 0,
    /* Whoever knows this end's public key. */
    ANABRANCH_ADMIT_ANYBODY = 1,
    /* Those whose keys are listed. */
    ANABRANCH_ADMIT_KEYS = 2
};

/* Which adapter a connection is to use. */
enum {
    /* The least cost, whenever another becomes better. */
    ANABRANCH_BALANCED = 0,
    /* The fastest of the beginning, for as long as it lasts. */
    ANABRANCH_REAL_TIME = 1,
    /* The lowest price, then the least energy. */
    ANABRANCH_CHEAPEST = 2
};

typedef struct anabranch_endpoint anabranch_endpoint;
typedef struct anabranch_stream anabranch_stream;
typedef struct anabranch_datagrams anabranch_datagrams;
typedef struct anabranch_events anabranch_events;

/* Settings of an endpoint; zeros are defaults except for the key. */
typedef struct {
    uint8_t private_key[ANABRANCH_KEY_LENGTH];
    /* What this end calls itself to peers; null for nothing. */
    const char *name;
    /* Names of the only adapters that are used, with spaces between them; null for all that there are. */
    const char *adapters;
    /* Keys that are admitted, one after the other, and how many. */
    const uint8_t *admitted_keys;
    size_t admitted_count;
    /* How long a connection waits for a network, milliseconds; 0: five minutes. */
    uint32_t patience;
    /* UDP port on every adapter; 0 takes any. */
    uint16_t port;
    /* ANABRANCH_ADMIT_... */
    uint8_t admission;
    /* Not 0: use all adapters that are as good at once, packet by packet. */
    uint8_t spread;
} anabranch_options;

/* Settings of a connection; zeros are defaults. */
typedef struct {
    /* How long the set-up may take, milliseconds; 0: 20 seconds. */
    uint32_t deadline;
    /* ANABRANCH_BALANCED, ...; counts for all connections with the peer, the first one's. */
    uint32_t wish;
} anabranch_connect_options;

/* How a connection stands. */
typedef struct {
    /* Smoothed round trip, nanoseconds; 0 if it is not known. */
    uint64_t round_trip;
    /* What the adapter is expected to carry, bits a second; 0 if it is not known. */
    uint64_t bandwidth;
    /* Paths that could carry it: pairs of adapters. */
    uint32_t paths;
    /* The adapter that carries it; empty while it is suspended. */
    char adapter[ANABRANCH_NAME_LENGTH];
} anabranch_standing;

/* Kinds of events, after table 1 of the VirtualConnection paper. */
enum {
    /* A connection is there. */
    ANABRANCH_EVENT_NEW = 1,
    /* The active channel has lost connection; `flag`: no other is left, the connection is suspended. */
    ANABRANCH_EVENT_OFF = 2,
    /* A suspended connection goes on. */
    ANABRANCH_EVENT_ON = 3,
    /* Another channel is active; `from` is the adapter before. */
    ANABRANCH_EVENT_SWITCH = 4,
    /* A channel was removed. */
    ANABRANCH_EVENT_CONTROL_DELETED = 5,
    /* A passive channel has lost connection, or (`flag`) has it again. */
    ANABRANCH_EVENT_CONTROL_CHANGED = 6,
    /* The connection is over. */
    ANABRANCH_EVENT_ENDED = 7
};

typedef struct {
    uint32_t kind;
    uint32_t flag;
    uint8_t peer[ANABRANCH_KEY_LENGTH];
    char adapter[ANABRANCH_NAME_LENGTH];
    char from[ANABRANCH_NAME_LENGTH];
} anabranch_event;

/* What went wrong in this thread's last call that returned an error, in words; valid until the next call. */
const char *anabranch_error(void);

/* A new private key. */
int anabranch_key_generate(uint8_t private_key[ANABRANCH_KEY_LENGTH]);
/* The private key of a state directory, as the anabranch command uses it; made if there is none. */
int anabranch_key_load(const char *state_directory, uint8_t private_key[ANABRANCH_KEY_LENGTH]);
/* The public key of a private one: who this end is. */
int anabranch_key_public(const uint8_t private_key[ANABRANCH_KEY_LENGTH], uint8_t public_key[ANABRANCH_KEY_LENGTH]);

int anabranch_endpoint_open(const anabranch_options *options, anabranch_endpoint **endpoint);
/* Where peers reach this end, as text "ADDRESS:PORT" with a line end after each, cut off where there is no more room; the bytes
 * that all need, the final zero included. */
size_t anabranch_endpoint_addresses(const anabranch_endpoint *endpoint, char *text, size_t room);
/* Takes connections from now on; calls are refused before. */
int anabranch_listen(anabranch_endpoint *endpoint);
/* The next connection that a peer makes; `peer` may be null. ANABRANCH_CLOSED after anabranch_endpoint_close. */
int anabranch_accept(anabranch_endpoint *endpoint, anabranch_stream **stream, uint8_t peer[ANABRANCH_KEY_LENGTH]);
/* A connection to the peer with this key, which may be reached at these addresses ("ADDRESS:PORT", "bt:00:11:22:33:44:55:PORT"): hints, all tried at once. */
int anabranch_connect(anabranch_endpoint *endpoint, const uint8_t peer[ANABRANCH_KEY_LENGTH], const char *const *addresses,
                      size_t count, const anabranch_connect_options *options, anabranch_stream **stream);
/* Ends all connections, after what was written to them has arrived, or five seconds. Calls that wait return. */
void anabranch_endpoint_close(anabranch_endpoint *endpoint);
void anabranch_endpoint_free(anabranch_endpoint *endpoint);

/* The number of bytes read, at least 1; 0 at the end; an error below 0. */
ptrdiff_t anabranch_read(anabranch_stream *stream, void *into, size_t room);
/* The number of bytes taken over, at least 1; an error below 0. */
ptrdiff_t anabranch_write(anabranch_stream *stream, const void *bytes, size_t length);
/* Says that no more bytes follow, and waits until the peer has all. */
int anabranch_finish(anabranch_stream *stream);
/* Gives the connection up at once: the peer reads an error, and calls that wait here return. */
void anabranch_reset(anabranch_stream *stream, uint64_t code);
int anabranch_stream_standing(const anabranch_stream *stream, anabranch_standing *standing);
void anabranch_stream_free(anabranch_stream *stream);

/* Datagrams to and from a peer: not repeated if they are lost. Arguments as those of anabranch_connect. */
int anabranch_datagrams_open(anabranch_endpoint *endpoint, const uint8_t peer[ANABRANCH_KEY_LENGTH], const char *const *addresses,
                             size_t count, const anabranch_connect_options *options, anabranch_datagrams **datagrams);
/* The datagrams of the peer of a stream. */
int anabranch_datagrams_of(anabranch_endpoint *endpoint, const anabranch_stream *stream, anabranch_datagrams **datagrams);
/* Sends one, unless it still waits for a network after `deadline` milliseconds. */
int anabranch_datagram_send(anabranch_datagrams *datagrams, const void *bytes, size_t length, uint32_t deadline);
/* The length of the next one, whose bytes beyond `room` are lost; an error below 0. */
ptrdiff_t anabranch_datagram_receive(anabranch_datagrams *datagrams, void *into, size_t room);
void anabranch_datagrams_free(anabranch_datagrams *datagrams);

/* What happens to connections from now on. */
int anabranch_events_open(anabranch_endpoint *endpoint, anabranch_events **events);
/* The next event; ANABRANCH_CLOSED once the endpoint is closed. */
int anabranch_events_next(anabranch_events *events, anabranch_event *event);
void anabranch_events_free(anabranch_events *events);

#ifdef __cplusplus
}
#endif
#endif
