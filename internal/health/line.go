package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
	// maxBody bounds how much of an answer is read, in bytes.
	maxBody = 64 << 10
	// lineAge is how old a line may be when a request is sent on it. A server that
	// goes on serving old connections while its listener is gone or its backlog is
	// full is found out by the next new one.
	lineAge = 2 * time.Second
)

var errHeaderTooLong = errors.New("the header of the answer is too long")

// line is one connection to the server. It replaces http.Transport, which would
// write to the global logger and report one fault in several ways, depending on
// which of its goroutines saw it first.
//
// One that was answered stays open until the next probe: its end tells at once that
// the server has died, and a request on it costs a fraction of a TLS handshake.
type line struct {
	raw   net.Conn
	conn  net.Conn // raw, or TLS over it
	since time.Time
	// limit bounds what reader takes from conn.
	limit  *io.LimitedReader
	reader *bufio.Reader

	// While the line is watched, each token in arm leads to one in readable once
	// there is something to read, the end included. arm is nil before.
	arm, readable chan struct{}
	watcher       sync.WaitGroup
}

// answer is what a server has said.
type answer struct {
	status int
	header http.Header
	body   []byte // no more than maxBody of it
	again  bool   // the line may be asked again
}

// open makes a line, over TLS if config is not nil. The phase is what is being
// done, for the text of a timeout.
func open(ctx context.Context, address string, config *tls.Config, phase *string) (*line, error) {
	*phase = "connecting"
	raw, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	l := &line{raw: raw, conn: raw, since: time.Now()}
	if config != nil {
		*phase = "TLS handshake"
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		l.conn = secure
	}
	l.limit = &io.LimitedReader{R: l.conn}
	l.reader = bufio.NewReader(l.limit)
	return l, nil
}

// ask sends the request and reads the answer. It returns when ctx ends.
func (l *line) ask(ctx context.Context, request *http.Request, phase *string) (answer, error) {
	*phase = "waiting for an answer"
	inTime := context.AfterFunc(ctx, func() { _ = l.raw.SetDeadline(time.Unix(1, 0)) })
	defer inTime()
	l.limit.N = maxHeader
	// A server may refuse without reading; then its words count and not that it
	// did not listen. If it says nothing, reading fails as well.
	_ = request.Write(l.conn)
	if l.arm != nil {
		<-l.readable // at the latest by the deadline
	}
	response, err := readHeader(l.reader, request)
	switch {
	case err != nil && l.limit.N == 0:
		return answer{}, errHeaderTooLong
	case err != nil:
		return answer{}, err
	}
	defer response.Body.Close()
	*phase = "reading the answer"
	l.limit.N = 2 * maxBody // room for the framing of chunks
	// A server that sends a header and then hangs is not well.
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	whole := err == nil && len(body) < maxBody && !response.Close && l.reader.Buffered() == 0
	return answer{response.StatusCode, response.Header, body, whole && inTime()}, err
}

// readHeader skips what is said before the answer proper (RFC 9110 section
// 15.2).
func readHeader(reader *bufio.Reader, request *http.Request) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(reader, request)
		if err != nil || response.StatusCode >= 200 {
			return response, err
		}
	}
}

// watch waits for something to read, once. It reports false if the line cannot be
// watched.
func (l *line) watch() bool {
	if l.arm == nil {
		socket, ok := l.raw.(syscall.Conn)
		if !ok {
			return false
		}
		raw, err := socket.SyscallConn()
		if err != nil {
			return false
		}
		l.arm, l.readable = make(chan struct{}, 1), make(chan struct{}, 1)
		l.watcher.Go(func() { l.peek(raw) })
	}
	l.arm <- struct{}{}
	return true
}

// peek reads nothing: what comes is for ask, or for nobody.
func (l *line) peek(raw syscall.RawConn) {
	var b [1]byte
	ready := func(fd uintptr) bool {
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		return errno != unix.EAGAIN
	}
	for range l.arm {
		_ = raw.Read(ready) // an error is an end, too
		l.readable <- struct{}{}
	}
}

// close ends the line and its watcher.
func (l *line) close() {
	// Nothing is on its way, so nothing can be lost by an error.
	_ = l.conn.Close()
	if l.arm == nil {
		return
	}
	close(l.arm)
	l.watcher.Wait()
}
