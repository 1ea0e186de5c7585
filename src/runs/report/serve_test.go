package report

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The served page follows the files of its runs, and is made again only when they change.
func TestServerFollowsARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	if err := os.CopyFS(dir, os.DirFS("testdata/vip")); err != nil {
		t.Fatal(err)
	}
	summary, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "summary.json")); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	code, page := get("/")
	if code != 200 || !strings.Contains(page, "not finished") || !strings.Contains(page,
		"data-live") {
		t.Errorf("%d of a run that goes on", code)
	}
	before := &s.page[0]
	if get("/"); &s.page[0] != before {
		t.Error("made again, though nothing changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "summary.json"), summary, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, page = get("/"); strings.Contains(page, "not finished") ||
		!strings.Contains(page, "Test accuracy") {
		t.Error("the page does not know that the run has finished")
	}
	if code, _ := get("/etc/passwd"); code != 404 {
		t.Errorf("%d for another path", code)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := NewServer([]string{dir}); err == nil {
		t.Error("a server of no run")
	}
	if code, page := get("/"); code != 500 || !strings.Contains(page, "holds no run") {
		t.Errorf("%d %s of a run that is gone", code, page)
	}
}
