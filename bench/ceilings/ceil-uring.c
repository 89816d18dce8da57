// ceil-uring PORT FILE [fixed|plain [LOOPS]]: physical limit of an io_uring proactor, one
// thread unless LOOPS says more:
// multishot accept, multishot recv with a provided buffer ring, send with CQE_SKIP_SUCCESS,
// SINGLE_ISSUER | DEFER_TASKRUN. Any read that ends with CRLFCRLF gets one prebuilt 200 answer.
#define _GNU_SOURCE
#include "answer.h"
#include "listener.h"
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/mman.h>
#define NBUF 8192
#define BUFSZ 1024
#define MAXFD 20000
enum { ACCEPT, RECV, SEND, CLOSE };
#define UD(op, fd) (((__u64)(op) << 32) | (unsigned)(fd))
static struct io_uring ring;
static char (*bufs)[BUFSZ];
static int fixed = 1;
static char state[MAXFD];
static struct io_uring_sqe *sqe(void) {
    struct io_uring_sqe *s;
    while (!(s = io_uring_get_sqe(&ring)))
        io_uring_submit(&ring);
    return s;
}
static void arm_recv(int fd) {
    struct io_uring_sqe *s = sqe();
    io_uring_prep_recv_multishot(s, fd, 0, 0, 0);
    s->flags |= IOSQE_BUFFER_SELECT | (fixed ? IOSQE_FIXED_FILE : 0);
    s->buf_group = 0;
    s->ioprio |= IORING_RECVSEND_POLL_FIRST;
    s->user_data = UD(RECV, fd);
}
static void do_close(int fd) {
    struct io_uring_sqe *s = sqe();
    if (fixed)
        io_uring_prep_close_direct(s, fd);
    else
        io_uring_prep_close(s, fd);
    s->flags |= IOSQE_CQE_SKIP_SUCCESS;
    s->user_data = UD(CLOSE, fd);
}
static void arm_accept(int l) {
    struct io_uring_sqe *s = sqe();
    if (fixed)
        io_uring_prep_multishot_accept_direct(s, l, 0, 0, 0);
    else
        io_uring_prep_multishot_accept(s, l, 0, 0, 0);
    s->user_data = UD(ACCEPT, l);
}
int main(int c, char **v) {
    if (c < 3) {
        fprintf(stderr, "usage: ceil-uring PORT FILE [fixed|plain [LOOPS]]\n");
        return 2;
    }
    int port = atoi(v[1]);
    struct answer keep = answer_of(v[2], ""), bye = answer_of(v[2], "Connection: close\r\n");
    if (c > 3 && !strcmp(v[3], "plain"))
        fixed = 0;
    int l = listen_at(port, c > 4 ? atoi(v[4]) : 1, 0);
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                         IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL,
                                .cq_entries = 32768};
    int r = io_uring_queue_init_params(4096, &ring, &p);
    if (r) {
        fprintf(stderr, "ring: %s\n", strerror(-r));
        return 1;
    }
    io_uring_register_ring_fd(&ring);
    if (fixed && (r = io_uring_register_files_sparse(&ring, MAXFD))) {
        fprintf(stderr, "files: %s\n", strerror(-r));
        return 1;
    }
    bufs =
        mmap(0, (size_t)NBUF * BUFSZ, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct io_uring_buf_ring *br = mmap(0, NBUF * sizeof(struct io_uring_buf),
                                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct io_uring_buf_reg reg = {.ring_addr = (unsigned long)br, .ring_entries = NBUF, .bgid = 0};
    if ((r = io_uring_register_buf_ring(&ring, &reg, 0))) {
        fprintf(stderr, "bufring: %s\n", strerror(-r));
        return 1;
    }
    io_uring_buf_ring_init(br);
    int mask = io_uring_buf_ring_mask(NBUF);
    for (int i = 0; i < NBUF; i++)
        io_uring_buf_ring_add(br, bufs[i], BUFSZ, i, mask, i);
    io_uring_buf_ring_advance(br, NBUF);
    arm_accept(l);
    for (;;) {
        r = io_uring_submit_and_wait(&ring, 1);
        if (r < 0 && r != -EINTR && r != -EBUSY) {
            fprintf(stderr, "wait: %s\n", strerror(-r));
            return 1;
        }
        struct io_uring_cqe *q;
        unsigned head, n = 0;
        int back = 0;
        io_uring_for_each_cqe(&ring, head, q) {
            n++;
            int op = q->user_data >> 32, fd = (unsigned)q->user_data, res = q->res;
            if (op == ACCEPT) {
                if (res >= 0) {
                    state[res] = 0;
                    arm_recv(res);
                }
                if (!(q->flags & IORING_CQE_F_MORE))
                    arm_accept(l);
            } else if (op == RECV) {
                int go = 0, closing = 0;
                if (q->flags & IORING_CQE_F_BUFFER) {
                    int b = q->flags >> IORING_CQE_BUFFER_SHIFT;
                    go = res >= 4 && !memcmp(bufs[b] + res - 4, "\r\n\r\n", 4);
                    if (go)
                        closing = memmem(bufs[b], res, "tion: close", 11) != 0;
                    io_uring_buf_ring_add(br, bufs[b], BUFSZ, b, mask, back++);
                }
                if (go) {
                    struct io_uring_sqe *s = sqe();
                    struct answer *it = closing ? &bye : &keep;
                    io_uring_prep_send(s, fd, it->bytes, it->len, MSG_NOSIGNAL | MSG_WAITALL);
                    s->flags |= (fixed ? IOSQE_FIXED_FILE : 0) | IOSQE_CQE_SKIP_SUCCESS;
                    s->user_data = UD(SEND, fd);
                    if (closing) { // send, cancel the armed recv, close: never shutdown(), which
                                   // io_uring punts to a worker thread and whose linked fixed file
                                   // is looked up late (slot reuse!)
                        state[fd] = 1;
                        s->flags |= IOSQE_IO_HARDLINK;
                        s = sqe();
                        io_uring_prep_cancel_fd(s, fd, fixed ? IORING_ASYNC_CANCEL_FD_FIXED : 0);
                        s->flags |= IOSQE_IO_HARDLINK | IOSQE_CQE_SKIP_SUCCESS;
                        s->user_data = UD(SEND, fd);
                        do_close(fd);
                    }
                }
                if (!(q->flags & IORING_CQE_F_MORE)) {
                    if (state[fd] || res == -ECANCELED)
                        ;
                    else if (res > 0 || res == -ENOBUFS)
                        arm_recv(fd);
                    else
                        do_close(fd);
                }
            }
        }
        if (back)
            io_uring_buf_ring_advance(br, back);
        io_uring_cq_advance(&ring, n);
    }
}
