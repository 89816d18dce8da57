// ceil-epoll-eager PORT FILE: physical limit of a one-thread epoll reactor.
// The same with deferred accept and a first read before any registration.
#define _GNU_SOURCE
#include "answer.h"
#include "listener.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#define MAXFD 20000
static size_t pending[MAXFD]; // bytes of the answer not yet sent (0: idle)
static char closing[MAXFD];
int main(int c, char **v) {
    if (c < 3) {
        fprintf(stderr, "usage: ceil-epoll-eager PORT FILE\n");
        return 2;
    }
    int port = atoi(v[1]);
    struct answer keep = answer_of(v[2], ""), bye = answer_of(v[2], "Connection: close\r\n");
    signal(SIGPIPE, SIG_IGN);
    int l = listen_at(port, 1, SOCK_NONBLOCK);
    int one = 1;
    setsockopt(l, IPPROTO_TCP, TCP_DEFER_ACCEPT, &one, sizeof one);
    int ep = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = l}, ev[512];
    epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
    static char buf[16384];
    for (;;) {
        int n = epoll_wait(ep, ev, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd;
            if (fd == l) {
                int s;
                while ((s = accept4(l, 0, 0, SOCK_NONBLOCK)) >= 0) {
                    if (s >= MAXFD) {
                        close(s);
                        continue;
                    }
                    pending[s] = 0;
                    closing[s] = 0;
                    ssize_t r = recv(s, buf, sizeof buf, 0);
                    if (r > 4 && !memcmp(buf + r - 4, "\r\n\r\n", 4)) {
                        int cl = memmem(buf, r, "tion: close", 11) != 0;
                        struct answer *it = cl ? &bye : &keep;
                        send(s, it->bytes, it->len, MSG_NOSIGNAL);
                        if (cl) {
                            close(s);
                            continue;
                        }
                    }
                    e.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                    e.data.fd = s;
                    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
                }
                continue;
            }
            if (!pending[fd] && (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
                ssize_t r = recv(fd, buf, sizeof buf, 0);
                if (r == 0 || (r < 0 && errno != EAGAIN)) {
                    close(fd);
                    continue;
                }
                if (r < 4 || memcmp(buf + r - 4, "\r\n\r\n", 4))
                    continue;
                closing[fd] = memmem(buf, r, "tion: close", 11) != 0;
                pending[fd] = closing[fd] ? bye.len : keep.len;
            }
            if (pending[fd]) {
                struct answer *it = closing[fd] ? &bye : &keep;
                char *end = it->bytes + it->len;
                ssize_t w = 0;
                while (pending[fd] &&
                       (w = send(fd, end - pending[fd], pending[fd], MSG_NOSIGNAL)) > 0)
                    pending[fd] -= w;
                if (pending[fd] && errno != EAGAIN) {
                    close(fd);
                    continue;
                }
                if (!pending[fd] && closing[fd])
                    close(fd);
            }
        }
    }
}
