package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"lbd.dev/lbd/tests/lab"
)

// StartCluster starts the routers of a net, and on its first node lbd that reads
// objects from the API server at this address of the test. The caller closes the
// Fabric, and with it the net.
func StartCluster(ctx context.Context, n *Net, api string) (*Fabric, error) {
	s := &LBD{NoBFD: true}
	f := newFabric(n, s)
	err := f.startRouters(ctx, Options{})
	if err == nil {
		err = startInCluster(ctx, n, s, n.Nodes[0], api)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, f.Logs(15))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func startInCluster(ctx context.Context, n *Net, s *LBD, m *lab.Node, api string) error {
	l, err := m.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go forward(l, api)
	file := filepath.Join(m.Dir, "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test}}]
clusters: [{name: test, cluster: {server: "http://%s"}}]
`, l.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	return s.startWith(ctx, n, m, "kubernetes: {kubeconfig: "+file+"}\n")
}

// forward carries connections to an address outside of the namespace until the
// listener is closed.
func forward(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = in.Close() }()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = out.Close() }()
			var wg sync.WaitGroup
			for _, x := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(x[0], x[1])
					_ = x[0].(*net.TCPConn).CloseWrite()
				})
			}
			wg.Wait()
		}()
	}
}
