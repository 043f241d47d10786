package lab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNoClock says that processes of this machine cannot be given a clock of their own.
var ErrNoClock = errors.New("a process's clock can be set on amd64 only")

// Clock is the clock of one running process, such as an agent, which tells the time as the machine's
// does until it is stepped. Programs that the process starts have the machine's.
//
// A process reads the time through code that the kernel maps into it, the vDSO. As
// a debugger may, root writes to a process's copy of it: there clock_gettime asks
// the kernel, and adds so many seconds where the clock is CLOCK_REALTIME.
type Clock struct {
	pid    int
	mem    *os.File
	offset int64 // where the seconds stand
}

// realtime is the routine in the place of clock_gettime(clock, *timespec): the
// system call 228, and for clock 0 the addition of the last eight bytes.
var realtime = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov eax, 228
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jne to ret
	0x48, 0x8b, 0x0d, 6, 0, 0, 0, // mov rcx, [rip+6]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
	0, 0,
	0, 0, 0, 0, 0, 0, 0, 0,
}

// jump is how many bytes a jump to another place takes.
const jump = 5

// Clock gives the running agent a clock of its own; the next agent needs another.
func (a *Agent) Clock() (*Clock, error) {
	a.mu.Lock()
	pid := a.cmd.Process.Pid
	a.mu.Unlock()
	return ClockOf(pid)
}

// ClockOf gives a running process a clock of its own.
func ClockOf(pid int) (*Clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, ErrNoClock
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the memory of process %d: %w", pid, err)
	}
	c := &Clock{pid: pid, mem: mem}
	if err := c.take(); err != nil {
		_ = mem.Close()
		return nil, fmt.Errorf("give process %d a clock: %w", pid, err)
	}
	return c, nil
}

// take puts the routine into the process.
func (c *Clock) take() error {
	from, to, err := c.mapped()
	if err != nil {
		return err
	}
	image := make([]byte, to-from)
	if _, err := c.mem.ReadAt(image, from); err != nil {
		return err
	}
	entry, err := symbol(image, "__vdso_clock_gettime")
	if err != nil {
		return err
	}
	// After the code there is room to the end of the page.
	at := len(image) - 64
	if len(bytes.Trim(image[at:], "\x00")) > 0 {
		return errors.New("the vDSO has no room")
	}
	c.offset = from + int64(at+len(realtime)-8) // a multiple of eight
	if _, err := c.mem.WriteAt(realtime, from+int64(at)); err != nil {
		return err
	}
	code := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(at-(entry+jump)))
	return c.swap(from+int64(entry), code)
}

// mapped returns where the process has the vDSO.
func (c *Clock) mapped() (from, to int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, errors.New("it has no vDSO")
}

// symbol returns where a function of an image is.
func symbol(image []byte, name string) (int, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == name {
			return int(s.Value), nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no %s", name)
}

// swap writes over code of the process, which stands still meanwhile, when no
// thread is in the midst of it.
func (c *Clock) swap(at int64, code []byte) error {
	for range 100 {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			return err
		}
		inside, err := c.inside(at, at+int64(len(code)))
		if err == nil && !inside {
			_, err = c.mem.WriteAt(code, at)
		}
		if err := errors.Join(err, syscall.Kill(c.pid, syscall.SIGCONT)); err != nil || !inside {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("its threads are always about to read the time")
}

// inside tells whether a thread of the stopped process is at one of the addresses
// from the first on to before the last, but for the first itself.
func (c *Clock) inside(first, last int64) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", c.pid))
	if err != nil {
		return false, err
	}
	for _, path := range threads {
		for until := time.Now().Add(Limit); ; time.Sleep(time.Millisecond) {
			text, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				break
			}
			words := strings.Fields(string(text))
			if err != nil || len(words) == 0 {
				return false, fmt.Errorf("read where %s is: %w", path, err)
			}
			pc, err := strconv.ParseInt(words[len(words)-1], 0, 64)
			if err == nil {
				if first < pc && pc < last {
					return true, nil
				}
				break
			}
			if time.Now().After(until) {
				return false, fmt.Errorf("%s is %q, not stopped", path, text)
			}
		}
	}
	return false, nil
}

// Step makes the agent's clock tell another time than the machine's from now on.
func (c *Clock) Step(ahead time.Duration) error {
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(ahead/time.Second))
	_, err := c.mem.WriteAt(seconds, c.offset)
	return err
}

// Close lets go of the process; its clock stays as it is.
func (c *Clock) Close() error { return c.mem.Close() }
