// Prints the addresses of a name as ares_getaddrinfo tells them.
#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/select.h>

static int failed;

static void told(void *arg, int status, int timeouts, struct ares_addrinfo *list) {
	struct ares_addrinfo_node *a;
	char text[INET6_ADDRSTRLEN];
	(void)arg, (void)timeouts;
	if ((failed = status != ARES_SUCCESS)) {
		puts(ares_strerror(status));
		return;
	}
	for (a = list->nodes; a; a = a->ai_next) {
		const void *addr = a->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
							   : (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		puts(ares_inet_ntop(a->ai_family, addr, text, sizeof text));
	}
	ares_freeaddrinfo(list);
}

int main(int argc, char **argv) {
	struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC};
	ares_channel channel;
	if (argc != 2 || ares_library_init(ARES_LIB_INIT_ALL) || ares_init(&channel)) return 2;
	ares_getaddrinfo(channel, argv[1], 0, &hints, told, 0);
	for (;;) {
		fd_set in, out;
		struct timeval wait, *least;
		FD_ZERO(&in);
		FD_ZERO(&out);
		int fds = ares_fds(channel, &in, &out);
		if (!fds) break;
		least = ares_timeout(channel, 0, &wait);
		select(fds, &in, &out, 0, least);
		ares_process(channel, &in, &out);
	}
	ares_destroy(channel);
	return failed;
}
