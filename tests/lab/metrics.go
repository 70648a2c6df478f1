package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metricsAddress is lbd's default HTTP address.
const metricsAddress = "127.0.0.1:7477"

// Metric reads one value without labels from the /metrics page of the node's
// daemon.
func (n *Node) Metric(ctx context.Context, name string) (float64, error) {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (c net.Conn, err error) {
			err = inNetns(n.NS, func() error {
				d := net.Dialer{Timeout: time.Second, FallbackDelay: -1}
				c, err = d.Dial("tcp", metricsAddress)
				return err
			})
			return c, err
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("metric %q: %w", name, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("metric %q: %s: %w", name, n.Name, err)
	}
	defer resp.Body.Close()
	scan := bufio.NewScanner(resp.Body)
	for scan.Scan() {
		if v, ok := strings.CutPrefix(scan.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("metric %q: %s has none", name, n.Name)
}
