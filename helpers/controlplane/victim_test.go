package controlplane_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"modrev/helpers/controlplane"
)

// The environment of a victim: a process that starts a control plane and then ends in some way.
const (
	victimEnd    = "MODREV_VICTIM"
	victimBinary = "MODREV_VICTIM_APISERVER"
)

// startedLine is what a victim prints when its control plane runs.
const startedLine = "STARTED"

// TestVictim is not a test: the other tests run it in processes of their own and look at what it leaves.
func TestVictim(t *testing.T) {
	end := os.Getenv(victimEnd)
	if end == "" {
		t.Skip("it is run by the tests below, in a process of its own")
	}
	c, err := controlplane.Start(t.Context(), controlplane.Options{APIServerPath: binary(t)})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(startedLine, c.Dir(), c.Admin().Host)
	switch end {
	case "stops":
		klog.Error("client-go has something to complain about")
		klog.ErrorS(context.Canceled, "and once more")
		utilruntime.HandleError(context.Canceled)
		log.Log.Error(context.Canceled, "controller-runtime, too")
		if err := c.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
	case "passes":
	case "fails":
		t.Fatal("on purpose")
	case "panics":
		panic("on purpose")
	case "exits":
		os.Exit(3)
	case "waits":
		select {} // until it is killed, or the -timeout is over
	default:
		t.Fatalf("no victim knows how to end by %q", end)
	}
}

// victim is a running TestVictim.
type victim struct {
	cmd    *exec.Cmd
	temp   string
	output bytes.Buffer // all that it printed; read it after wait
	lines  chan string
	ended  chan struct{}
}

func startVictim(t *testing.T, temp, end string, args ...string) *victim {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := binary(t)
	v := &victim{temp: temp, lines: make(chan string, 1000), ended: make(chan struct{})}
	v.cmd = exec.Command(self, append([]string{"-test.run=^TestVictim$"}, args...)...)
	v.cmd.Env = append(os.Environ(), "TMPDIR="+temp, victimEnd+"="+end, victimBinary+"="+path)
	// A group of its own, as a shell gives it: a signal to the group is Ctrl-C.
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v.cmd.Stdout, v.cmd.Stderr = w, w
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	go func() {
		defer close(v.ended)
		defer close(v.lines)
		scanner := bufio.NewScanner(r)
		for scanner.Scan() {
			v.output.WriteString(scanner.Text() + "\n")
			select {
			case v.lines <- scanner.Text():
			default: // nobody reads the rest
			}
		}
		_ = r.Close()
		_ = v.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		<-v.ended
	})
	return v
}

// started waits until the control plane of the victim runs, and returns its folder and its address.
func (v *victim) started(t *testing.T) (folder, address string) {
	t.Helper()
	for {
		select {
		case line, ok := <-v.lines:
			if !ok {
				t.Fatalf("the victim ended before its control plane ran:\n%s", v.output.String())
			}
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == startedLine {
				u, err := url.Parse(fields[2])
				if err != nil {
					t.Fatal(err)
				}
				return fields[1], u.Host
			}
		case <-within(t, limit).Done():
			t.Fatal("the victim's control plane did not start in time")
		}
	}
}

// wait waits for the end of the victim and of every process that could still print in its name.
func (v *victim) wait(t *testing.T) {
	t.Helper()
	select {
	case <-v.ended:
	case <-within(t, limit).Done():
		t.Fatal("the victim did not end in time")
	}
}

// nothingIsLeft checks that 5 s after a victim's end there is no process, no port and no folder of it.
func nothingIsLeft(t *testing.T, temp, address string) {
	t.Helper()
	eventually(t, 5*time.Second, "nothing of the dead process is left", func() string {
		if left := processes(t, temp+"/"); len(left) > 0 {
			return fmt.Sprintf("these processes run: %v", left)
		}
		if address != "" {
			if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				_ = conn.Close()
				return address + " is open"
			}
		}
		entries, err := os.ReadDir(temp)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) > 0 {
			return fmt.Sprintf("the temporary folder holds %v", entries)
		}
		return ""
	})
}

func TestNothingIsLeftHoweverTheProcessEnds(t *testing.T) {
	for _, how := range []string{"stops", "passes", "fails", "panics", "exits"} {
		t.Run(how, func(t *testing.T) {
			temp := shortTemp(t)
			v := startVictim(t, temp, how)
			_, address := v.started(t)
			v.wait(t)
			nothingIsLeft(t, temp, address)
			if how == "stops" {
				quiet(t, v.output.String())
			}
		})
	}
	t.Run("is over its -timeout", func(t *testing.T) {
		temp := shortTemp(t)
		v := startVictim(t, temp, "waits", "-test.timeout=10s")
		_, address := v.started(t)
		v.wait(t)
		if !strings.Contains(v.output.String(), "test timed out") {
			t.Errorf("it ended in another way:\n%s", v.output.String())
		}
		nothingIsLeft(t, temp, address)
	})
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(fmt.Sprintf("its group gets signal %d, %v", int(signal), signal), func(t *testing.T) {
			temp := shortTemp(t)
			v := startVictim(t, temp, "waits")
			_, address := v.started(t)
			if err := syscall.Kill(-v.cmd.Process.Pid, signal); err != nil {
				t.Fatal(err)
			}
			v.wait(t)
			nothingIsLeft(t, temp, address)
		})
	}
}

// quiet checks that a run printed nothing but what the test itself printed.
func quiet(t *testing.T, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, startedLine) && strings.TrimSpace(line) != "PASS" {
			t.Errorf("a run that goes well prints: %s", line)
		}
	}
}

func TestAKillAtAnyMomentLeavesNothing(t *testing.T) {
	temp := shortTemp(t)
	begin := time.Now()
	v := startVictim(t, temp, "stops")
	v.started(t)
	v.wait(t)
	nothingIsLeft(t, temp, "")
	whole := time.Since(begin)

	for i := range *kills {
		// Over a life from its first moment to some time after the start, each at random in its part, and more
		// of them early, where one step follows another within milliseconds.
		part := (float64(i) + rand.Float64()) / float64(*kills)
		moment := time.Duration(part * part * 1.3 * float64(whole))
		v := startVictim(t, temp, "waits")
		select {
		case <-time.After(moment):
		case <-v.ended:
			t.Fatalf("the victim ended by itself:\n%s", v.output.String())
		}
		folders, _ := filepath.Glob(filepath.Join(temp, "*"))
		running := len(processes(t, temp+"/"))
		if err := v.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		t.Logf("killed after %v, when %d folders and %d processes were there", moment.Round(time.Millisecond), len(folders),
			running)
		v.wait(t)
		nothingIsLeft(t, temp, "")
	}
}

func TestTheNextStartSweepsWhatTheDeadHaveLeftAndOnlyThat(t *testing.T) {
	temp := shortTemp(t)
	dead := startVictim(t, temp, "waits")
	deadFolder, deadAddress := dead.started(t)
	live := startVictim(t, temp, "waits")
	liveFolder, liveAddress := live.started(t)

	// A kube-apiserver may end by itself when its etcd is gone. This one is not given the time.
	for pid := range processes(t, "--cert-dir="+deadFolder) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	// Kill its owner, and before that the guard, which would have cleaned up.
	for pid, command := range processes(t, deadFolder) {
		if strings.Contains(command, "modrev-guard") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := dead.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	dead.wait(t)
	if len(processes(t, "--cert-dir="+deadFolder)) == 0 {
		t.Fatal("no kube-apiserver outlived its guard, so there is nothing to sweep")
	}

	// What others have in the temporary folder under such a name stays.
	foreign := []string{
		filepath.Join(temp, "modrev-notes"),
		filepath.Join(temp, "modrev-empty-and-new"),
		filepath.Join(temp, "another"),
	}
	for _, dir := range foreign {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	notes := filepath.Join(foreign[0], "notes.txt")
	if err := os.WriteFile(notes, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().AddDate(0, 0, -1)
	if err := os.Chtimes(foreign[0], yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		// A folder of another user that looks like one of ours whose owner is dead.
		other := filepath.Join(temp, "modrev-ofanother")
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(other, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(other, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		foreign = append(foreign, other)
	}
	// A process id that was given to somebody else meanwhile: this very process.
	stale := filepath.Join(deadFolder, "pids", "second")
	if err := os.WriteFile(stale, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	next := startVictim(t, temp, "stops")
	next.started(t)
	next.wait(t)

	if _, err := os.Stat(deadFolder); !os.IsNotExist(err) {
		t.Errorf("the folder of the dead is still there: %v", err)
	}
	if left := processes(t, deadFolder); len(left) > 0 {
		t.Errorf("processes of the dead still run: %v", left)
	}
	if conn, err := net.Dial("tcp", deadAddress); err == nil {
		_ = conn.Close()
		t.Errorf("the port of the dead, %s, is still open", deadAddress)
	}
	if _, err := os.Stat(liveFolder); err != nil {
		t.Errorf("the folder of a living control plane was touched: %v", err)
	}
	conn, err := net.Dial("tcp", liveAddress)
	if err != nil {
		t.Errorf("the kube-apiserver of a living control plane was touched: %v", err)
	} else {
		_ = conn.Close()
	}
	for _, dir := range append(foreign, notes) {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("what others had in the temporary folder was touched: %v", err)
		}
	}
}

func TestWhereTheTemporaryFolderMayBe(t *testing.T) {
	for name, below := range map[string]string{
		"with a path too long for a socket":  strings.Repeat("long/", 30),
		"with spaces and commas in its path": "my files, all of them",
	} {
		t.Run(name, func(t *testing.T) {
			temp := filepath.Join(shortTemp(t), below)
			if err := os.MkdirAll(temp, 0o700); err != nil {
				t.Fatal(err)
			}
			v := startVictim(t, temp, "stops")
			folder, address := v.started(t)
			v.wait(t)
			nothingIsLeft(t, temp, address)
			if filepath.Dir(folder) != "/tmp" {
				t.Errorf("the control plane was in %s, want it in /tmp", folder)
			}
			if _, err := os.Stat(folder); !os.IsNotExist(err) {
				t.Errorf("its folder is still there: %v", err)
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		v := startVictim(t, "/nonexistent", "stops")
		v.wait(t)
		for _, want := range []string{"making a temporary folder for the control plane", "/nonexistent",
			"set TMPDIR to a folder that you can write to"} {
			if !strings.Contains(v.output.String(), want) {
				t.Errorf("the message does not say %q:\n%s", want, v.output.String())
			}
		}
	})
}
