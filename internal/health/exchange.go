package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
	// maxBody bounds how much of an answer is read, in bytes.
	maxBody = 64 << 10
)

var errHeaderTooLong = errors.New("the header of the answer is too long")

// exchange is one request and its answer on a connection of its own. It replaces
// http.Transport, which would keep goroutines beside the request, write to the
// global logger and report one fault in several ways, depending on which of its
// goroutines saw it first.
type exchange struct {
	// phase is what is being done, for the text of a timeout.
	phase string
}

// do sends the request, over TLS if config is not nil, and returns the answer:
// of the body no more than maxBody. It returns when ctx ends.
func (e *exchange) do(ctx context.Context, request *http.Request, config *tls.Config) (int, http.Header, []byte, error) {
	e.phase = "connecting"
	conn, err := dial(ctx, request.URL.Host)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { conn.Close() }()
	raw := conn
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })()
	if config != nil {
		e.phase = "TLS handshake"
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return 0, nil, nil, err
		}
		conn = secure
	}
	e.phase = "waiting for an answer"
	// A server may refuse without reading; then its words count and not that it
	// did not listen. If it says nothing, reading fails as well.
	_ = request.Write(conn)
	bounded := &io.LimitedReader{R: conn, N: maxHeader}
	response, err := readHeader(bufio.NewReader(bounded), request)
	switch {
	case err != nil && bounded.N == 0:
		return 0, nil, nil, errHeaderTooLong
	case err != nil:
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	e.phase = "reading the answer"
	bounded.N = 2 * maxBody // room for the framing of chunks
	// A server that sends a header and then hangs is not well.
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	return response.StatusCode, response.Header, body, err
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
