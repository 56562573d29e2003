/* What holds a pod's namespaces: waits for ever, and as their first process reaps whatever is left to it. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void) {
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    /* Blocked signals stay pending for sigwait; the first process of a namespace would else never see them. */
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    for (int received;;) {
        if (sigwait(&awaited, &received) == 0 && received != SIGCHLD) return 0;
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
}
