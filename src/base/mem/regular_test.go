package mem

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Open refuses at once what is no regular file, and follows links to those that are.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(in("fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", in("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := os.Symlink(in("fifo"), in("link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		in("fifo"): "a FIFO", in("link"): "a FIFO", in("socket"): "a socket", dir: "a directory",
		"/dev/zero": "a device", in("none"): "no such file",
	} {
		_, err := ReadFile(path)
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if err := os.WriteFile(in("file"), []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(in("file")); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}
