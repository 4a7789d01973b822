/* An echo server on one thread: answers each REQUEST_BYTES of a connection with RESPONSE_BYTES. A yardstick. */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 64, SOCKETS = 65536, BUFFER_BYTES = 65536 };

static int received[SOCKETS];

int main(int count, char **arguments)
{
    static char buffer[BUFFER_BYTES];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct epoll_event events[EVENTS], added = {.events = EPOLLIN};
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);

    if (count != 3)
        return 2;
    int request_bytes = atoi(arguments[1]), response_bytes = atoi(arguments[2]);
    char *response = calloc(1, response_bytes);
    *(int *)response = htonl(response_bytes - 4);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 512))
        return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("bootstrap=127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    added.data.fd = listener;
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &added);
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int one = events[i].data.fd;
            if (one == listener) {
                one = accept(listener, NULL, NULL);
                setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                added.data.fd = one;
                received[one] = 0;
                epoll_ctl(poll, EPOLL_CTL_ADD, one, &added);
                continue;
            }
            int got = recv(one, buffer, BUFFER_BYTES, 0);
            if (got <= 0) {
                close(one);
                continue;
            }
            for (received[one] += got; received[one] >= request_bytes; received[one] -= request_bytes)
                send(one, response, response_bytes, MSG_NOSIGNAL);
        }
    }
}
