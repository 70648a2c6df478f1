package lab

import (
	"context"
	"fmt"
)

// firstBackend is the number of the first backend on the LAN.
const firstBackend = 31

// AddBackends adds machines with the service, and lets the nodes forward to them.
func (l *Lab) AddBackends(ctx context.Context, count int) error {
	for i := range count {
		h, err := l.AddHost(ctx, fmt.Sprintf("s%d", i+1), firstBackend+i)
		if err != nil {
			return err
		}
		n := &Node{Host: *h}
		if err := l.StartService(ctx, n); err != nil {
			return err
		}
		l.Backends = append(l.Backends, n)
	}
	for _, n := range l.Nodes {
		if err := l.Sysctl(&n.Host, map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv4/conf/all/send_redirects": "0", "ipv4/conf/eth0/send_redirects": "0"}); err != nil {
			return err
		}
	}
	return nil
}
