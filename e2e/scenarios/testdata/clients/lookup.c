// Prints the addresses of a name as getaddrinfo tells them.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
	char text[INET6_ADDRSTRLEN];
	int code = argc == 2 ? getaddrinfo(argv[1], 0, &hints, &list) : EAI_FAIL;
	if (code) {
		printf("%s\n", gai_strerror(code));
		return 1;
	}
	for (a = list; a; a = a->ai_next) {
		const void *addr = a->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
							   : (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		puts(inet_ntop(a->ai_family, addr, text, sizeof text));
	}
	return 0;
}
