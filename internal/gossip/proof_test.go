package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lbd.dev/lbd/internal/gossip/beat"
	"lbd.dev/lbd/internal/model"
)

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// strangerEnv names the node that a process of this program is to call as a host without the key.
const strangerEnv = "LBD_TEST_STRANGER"

// streams is how many it keeps open.
const streams = 1000

// stranger has another host open streams to the node until the test ends, and returns once all have
// been opened. It is a process that gives way. In this one, a thousand goroutines would be before
// each of the node's, which no other host can do.
func stranger(t *testing.T, to netip.AddrPort, sends bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nice", "-n", "10", self, "-test.run=^TestStranger$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v", strangerEnv, to, sends))
	in, err := cmd.StdinPipe() // its end is that of the process
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("it says %q: %v", line, err)
	}
}

// TestStranger is that process.
func TestStranger(t *testing.T) {
	to, sends, is := strings.Cut(os.Getenv(strangerEnv), " ")
	if !is {
		return
	}
	var opened atomic.Int64
	for range streams {
		go func() {
			for {
				if keepOpen(to, sends == "true", func() {
					if opened.Add(1) == streams {
						fmt.Println("all have been opened")
					}
				}) != nil {
					time.Sleep(500 * time.Millisecond)
				}
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// keepOpen opens a stream, and may send what memberlist would read to the end: an encrypted
// message of 16 MiB.
func keepOpen(to string, sends bool, opened func()) error {
	c, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	opened()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if sends {
		// A label is no secret; then encryptMsg and the length.
		_, err = c.Write(append([]byte{244, 3, 'u', 'd', 'p', 10}, binary.BigEndian.AppendUint32(nil, 16<<20)...))
		block := make([]byte, 64<<10)
		for range 256 {
			if err == nil {
				_, err = c.Write(block)
			}
		}
	}
	_, _ = io.Copy(io.Discard, c) // until the other side has had enough
	c.Close()
	time.Sleep(2 * time.Second) // 500 a second, not all that this computer can open
	return nil
}

// TestStrangersCostLittleAndKeepNobodyOut: a thousand streams of a host without the key,
// idle or full of bytes, take no memory worth mentioning, and a node that has the key joins
// as fast as without them.
func TestStrangersCostLittleAndKeepNobodyOut(t *testing.T) {
	for _, sends := range []bool{false, true} {
		t.Run(fmt.Sprintf("sending %v", sends), func(t *testing.T) {
			nodes := sockets(t)
			before := heap()
			stranger(t, nodes[0].Addr(), sends)
			u := &nodes[0].sockets.unproven
			most, wait := uint64(0), 0
			for range 40 {
				most = max(most, heap())
				u.mu.Lock()
				wait = max(wait, len(u.streams))
				u.mu.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
			if wait > maxUnprovenHost {
				t.Errorf("%d streams of one host wait", wait)
			}
			if grown := int64(most) - int64(before); grown > 16<<20 {
				t.Errorf("the heap grew by %d KiB", grown>>10)
			} else {
				t.Logf("the heap grew by %d KiB", grown>>10)
			}
			g, err := New(Options{
				Name: "z", BindAddr: netip.MustParseAddr("127.0.0.19"), Peers: []string{peerAddr(nodes[0].Addr())}, Keys: [][]byte{key1}, Label: "udp",
			})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			z := run(g)
			t.Cleanup(z.kill)
			eventually(t, "a real node joins", func() bool { return nodes[0].other("z").State == model.MemberAlive && len(z.alive()) == 3 })
			t.Logf("a real node has joined after %v", time.Since(began))
		})
	}
}

// TestStrangersOfManyHosts: when too many wait the oldest goes, and not who comes.
func TestStrangersOfManyHosts(t *testing.T) {
	nodes := sockets(t)
	to := nodes[0].Addr()
	var idle []net.Conn
	for i := range 2 * maxUnproven {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i), 1)}}
		c, err := d.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
		defer c.Close()
	}
	conn, err := nodes[1].sockets.DialTimeout(to.String(), 10*time.Second)
	if err != nil {
		t.Fatalf("a real node is kept out: %v", err)
	}
	conn.Close()
	eventually(t, "all strangers are let go", func() bool {
		u := &nodes[0].sockets.unproven
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.streams) == 0
	})
	for _, c := range idle {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatal("a stream of a stranger is still open")
		}
	}
}

// TestProofOfAStream: what is said on one stream proves nothing on another or elsewhere, and
// a host with another key or label is told so, and counted.
func TestProofOfAStream(t *testing.T) {
	nodes := sockets(t)
	a, b := nodes[0].sockets, nodes[1].sockets
	answer := func(edit func(challenge []byte) []byte) error {
		c, err := net.Dial("tcp", a.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write([]byte{proofHello}); err != nil {
			t.Fatal(err)
		}
		hello := make([]byte, 1+challengeSize)
		if _, err := io.ReadFull(c, hello); err != nil {
			t.Fatal(err)
		}
		said := edit(hello[1:])
		if _, err := c.Write(append([]byte{byte(len(said))}, said...)); err != nil {
			t.Fatal(err)
		}
		verdict := make([]byte, 1)
		if _, err := io.ReadFull(c, verdict); err != nil {
			return err
		}
		if verdict[0] != proven {
			return fmt.Errorf("verdict %d", verdict[0])
		}
		return nil
	}
	if err := answer(func(x []byte) []byte { return a.seal.Seal(nil, proofText(x, a.addr)) }); err != nil {
		t.Errorf("a good answer: %v", err)
	}
	for name, edit := range map[string]func([]byte) []byte{
		"another challenge": func([]byte) []byte { return a.seal.Seal(nil, proofText(make([]byte, challengeSize), a.addr)) },
		"another node":      func(x []byte) []byte { return a.seal.Seal(nil, proofText(x, b.addr)) },
		"not encrypted":     func(x []byte) []byte { return beat.NewSealer(nil, "udp").Seal(nil, proofText(x, a.addr)) },
		"nothing":           func([]byte) []byte { return nil },
	} {
		if answer(edit) == nil {
			t.Errorf("%s is believed", name)
		}
	}
	before := nodes[0].Stats()
	for name, o := range map[string]Options{
		"no installed keys could decrypt": {Keys: [][]byte{key2}, Label: "udp"},
		"unacceptable label":              {Keys: [][]byte{key1}, Label: "other"},
	} {
		o.Name, o.BindAddr = "x", netip.MustParseAddr("127.0.0.18")
		g, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.sockets.DialTimeout(a.addr.String(), 10*time.Second); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
		_ = g.close()
	}
	eventually(t, "they are counted", func() bool {
		s := nodes[0].Stats()
		return s.KeyMismatches.Count > before.KeyMismatches.Count && s.LabelMismatches.Count > before.LabelMismatches.Count
	})
}

// TestStreamsOfOlderVersions: versions that know of no proof open streams without one, and
// end those that begin with one. Nodes of both kinds are in one group.
func TestStreamsOfOlderVersions(t *testing.T) {
	nodes := sockets(t)
	g, err := New(Options{
		Name: "old", BindAddr: netip.MustParseAddr("127.0.0.19"), Peers: []string{peerAddr(nodes[0].Addr())}, Keys: [][]byte{key1}, Label: "udp",
	})
	if err != nil {
		t.Fatal(err)
	}
	g.sockets.greeting.note(nodes[0].Addr(), time.Now().Add(time.Hour)) // it never proves anything
	old := run(g)
	t.Cleanup(old.kill)
	eventually(t, "the older node joins", func() bool { return nodes[0].other("old").State == model.MemberAlive && len(old.alive()) == 3 })

	l, err := net.Listen("tcp", "127.0.0.20:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var first []byte
	got := make(chan byte, 3)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1)
			if _, err := io.ReadFull(c, b); err == nil {
				got <- b[0]
			}
			c.Close()
		}
	}()
	for range 2 { // the second time it is not asked for a greeting
		c, err := nodes[0].sockets.DialTimeout(l.Addr().String(), 10*time.Second)
		if err != nil {
			t.Fatalf("an older node cannot be called: %v", err)
		}
		if _, err := c.Write([]byte{244}); err != nil {
			t.Fatal(err)
		}
		for first = append(first, <-got); first[len(first)-1] != 244; first = append(first, <-got) {
		}
		c.Close()
	}
	if want := []byte{proofHello, 244, 244}; string(first) != string(want) {
		t.Errorf("it heard %v, want %v", first, want)
	}
}

// TestFailedCallIsClosed: whoever is called and does not greet as lbd does has no open stream
// left over, each time that it is tried.
func TestFailedCallIsClosed(t *testing.T) {
	nodes := sockets(t)
	l, err := net.Listen("tcp", "127.0.0.21:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err = c.Write(make([]byte, 1+challengeSize)); err == nil { // no version of the proof
			_, err = io.Copy(io.Discard, c)
		}
		ended <- err
	}()
	if _, err := nodes[0].sockets.DialTimeout(l.Addr().String(), 10*time.Second); err == nil || !strings.Contains(err.Error(), "greets in another way") {
		t.Errorf("called: %v", err)
	}
	if err := <-ended; err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream stays open: %v", err)
	}
}

// TestStreamWithoutProofIsShort: what is read of one, whoever it is from, has a bound; and one
// that greeted once is not called without a proof because it ended a stream.
func TestStreamWithoutProofIsShort(t *testing.T) {
	near, far := net.Pipe()
	s := &plainStream{Conn: near, first: []byte{244}, left: plainBytes, t: &transport{}}
	go func() {
		_, _ = far.Write(make([]byte, 2*plainBytes))
	}()
	n, err := io.Copy(io.Discard, s)
	if n != 1+plainBytes || err != errPlain {
		t.Errorf("read %d bytes, then %v", n, err)
	}
	_, _ = near.Close(), far.Close()
	var g greeting
	to := netip.MustParseAddrPort("10.0.0.1:7947")
	g.greets(to)
	if g.ungreeted(to, time.Now()) || g.without(to, time.Now()) {
		t.Error("a node that greets is called without a proof")
	}
}
