package controlplane

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// logLimit is the size in bytes at which a log is set aside and a new one begun. One older log is kept.
const logLimit = 8 << 20

// logFile keeps the output of a kube-apiserver in a file of bounded size.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int
}

func newLogFile(path string) (*logFile, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the log file of kube-apiserver: %w", err)
	}
	return &logFile{path: path, file: file}, nil
}

// Write never fails for lack of space: losing a line is better than ending kube-apiserver, whose output
// this is.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size+len(p) > logLimit {
		l.rotate()
	}
	n, _ := l.file.Write(p)
	l.size += n
	return len(p), nil
}

func (l *logFile) rotate() {
	if err := os.Rename(l.path, l.path+".1"); err != nil {
		return
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = l.file.Close()
	l.file, l.size = file, 0
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// tail is the last lines of the log, each indented.
func (l *logFile) tail(lines int) string {
	content, err := os.ReadFile(l.path)
	if err != nil || len(content) == 0 {
		return "    (it printed nothing)"
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "    " + strings.Join(all, "\n    ")
}
