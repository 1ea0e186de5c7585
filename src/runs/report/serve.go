package report

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"halognn/src/data/rundir"
)

// Server serves a web page with the report of runs that may still be running. The page in the
// browser asks every two seconds for what has changed and replaces it.
type Server struct {
	dirs []string

	mu    sync.Mutex
	state string // sizes and times of the files from which the page was made
	page  []byte
}

// NewServer makes the first page. So it returns an error if a directory holds no run.
func NewServer(dirs []string) (*Server, error) {
	s := &Server{dirs: dirs}
	_, err := s.currentPage()
	return s, err
}

// ServeHTTP answers / with the page, and other paths with 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path != "/" {
		http.NotFound(w, q)
		return
	}
	page, err := s.currentPage()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // it is no error if the browser closed the connection
}

// currentPage returns the page. It makes a new one if a file of a run has changed.
func (s *Server) currentPage() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := ""
	for _, dir := range s.dirs {
		for _, name := range []string{rundir.ConfigFile, rundir.MetricsFile, rundir.SummaryFile} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
				state += fmt.Sprint(info.Size(), info.ModTime().UnixNano(), " ")
			} else {
				state += "- "
			}
		}
	}
	if state == s.state {
		return s.page, nil
	}
	runs, err := Load(s.dirs)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := writePage(&b, runs, true); err != nil {
		return nil, err
	}
	s.state, s.page = state, b.Bytes()
	return s.page, nil
}
