package health

import (
	"context"
	"fmt"

	"lbd.dev/lbd/api/v1alpha1"
)

// tcpProber passes if a connection can be opened. It is the kernel that answers:
// a process that hangs with an open listener passes until its backlog is full.
type tcpProber struct {
	address string
}

func newTCPProber(c v1alpha1.TCPCheck) tcpProber {
	return tcpProber{address: hostPort(c.Host, c.Port)}
}

func (p tcpProber) probe(ctx context.Context) error {
	conn, err := dial(ctx, p.address)
	if err != nil {
		return fmt.Errorf("tcp %s: %s", p.address, cause(ctx, err, "connecting"))
	}
	// Nothing was sent, so nothing can be lost by an error of Close.
	_ = conn.Close()
	return nil
}
