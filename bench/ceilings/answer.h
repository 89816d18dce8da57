// What a ceiling answers: the bytes of a file behind one prebuilt head.
#include <stdio.h>
#include <stdlib.h>
struct answer {
    char *bytes;
    size_t len;
};
// With `fields` (whole lines) added to the head. Ends the program where the file cannot be read.
static struct answer answer_of(const char *path, const char *fields) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    size_t body = ftell(file);
    rewind(file);
    struct answer a = {.bytes = malloc(body + 512)};
    a.len = sprintf(a.bytes,
                    "HTTP/1.1 200 OK\r\nServer: ceil\r\nContent-Type: text/html\r\n"
                    "Content-Length: %zu\r\n%s\r\n",
                    body, fields);
    if (fread(a.bytes + a.len, 1, body, file) != body) {
        fprintf(stderr, "%s: cannot be read whole\n", path);
        exit(1);
    }
    fclose(file);
    a.len += body;
    return a;
}
