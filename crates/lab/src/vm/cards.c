/* Ties the connections of a program that knows nothing of networks to cards, by SO_BINDTODEVICE: what a program that does know
 * would do itself. CARDS="198.51.100.2=a,198.51.101.2=b" names the card of each destination, "*=a" that of all others.
 * Preloaded; a destination without a card is left alone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void bind_to_card(int socket, const char *destination)
{
	const char *entry = getenv("CARDS");
	while (entry && *entry) {
		size_t length = strcspn(entry, ",");
		const char *card = memchr(entry, '=', length);
		if (card) {
			size_t name = card - entry;
			int is_meant = (name == 1 && *entry == '*') ||
				       (name == strlen(destination) && !strncmp(entry, destination, name));
			if (is_meant) {
				setsockopt(socket, SOL_SOCKET, SO_BINDTODEVICE, card + 1, length - name - 1);
				return;
			}
		}
		entry += length + (entry[length] == ',');
	}
}

int connect(int socket, const struct sockaddr *address, socklen_t length)
{
	int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	char text[INET_ADDRSTRLEN];
	if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET) {
		const struct sockaddr_in *inet = (const struct sockaddr_in *)address;
		if (inet_ntop(AF_INET, &inet->sin_addr, text, sizeof text))
			bind_to_card(socket, text);
	}
	return next(socket, address, length);
}
