// Where the ceilings listen: one loop, or several processes of one loop each at the same port.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
// A listener of each loop's own on the loopback address, between which the kernel divides the
// connections (SO_REUSEPORT). `flags` are those of socket(2). Ends the program where that fails.
static int listen_at(int port, int loops, int flags) {
    pid_t first = getpid();
    for (int i = 1; i < loops; i++)
        if (fork() == 0) { // ends with the first
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != first)
                exit(1);
            break;
        }
    int l = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (loops > 1)
        setsockopt(l, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    setsockopt(l, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); // inherited by accepted sockets
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(l, (void *)&a, sizeof a) || listen(l, 16384)) {
        perror("bind");
        exit(1);
    }
    return l;
}
