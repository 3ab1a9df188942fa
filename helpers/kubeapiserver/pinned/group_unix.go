//go:build unix

package pinned

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is a process group that ends with this process, whatever ends it: a shell leads the group
// and waits on a pipe that nobody writes to. When this process dies, the kernel closes the pipe, and
// the shell kills the group. Only that reaches the compilers which the go command has started.
type group struct {
	leader *exec.Cmd
	pipe   io.Closer // our end of the leader's standard input
	held   *os.File  // inherited by every member
	alive  *os.File  // inherited by every member, …
	empty  *os.File  // … so that this one reads to its end when all of them are gone
}

// startGroup starts a group whose members keep the file held open. If held is locked, it stays so
// until the last of them is gone.
func startGroup(held *os.File) (*group, error) {
	empty, alive, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("creating a pipe: %w", err)
	}
	leader := exec.Command("/bin/sh", "-c", "read -r never; kill -KILL 0")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leader.ExtraFiles = []*os.File{held, alive}
	pipe, err := leader.StdinPipe()
	if err == nil {
		err = leader.Start()
	}
	if err != nil {
		empty.Close()
		alive.Close()
		return nil, fmt.Errorf("starting a shell that watches over the go command: %w", err)
	}
	return &group{leader: leader, pipe: pipe, held: held, alive: alive, empty: empty}, nil
}

// join makes cmd a member once it is started. When cmd's context ends, the whole group is killed.
func (g *group) join(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.leader.Process.Pid}
	cmd.ExtraFiles = []*os.File{g.held, g.alive}
	cmd.Cancel = g.kill
	cmd.WaitDelay = patience
}

// patience is how long a killed process may take to disappear.
const patience = 5 * time.Second

func (g *group) kill() error { return unix.Kill(-g.leader.Process.Pid, unix.SIGKILL) }

// end kills the group and waits until all members are gone.
func (g *group) end() {
	g.kill()
	g.leader.Wait()
	g.pipe.Close()
	g.alive.Close()
	g.empty.SetReadDeadline(time.Now().Add(patience))
	io.Copy(io.Discard, g.empty)
	g.empty.Close()
}
