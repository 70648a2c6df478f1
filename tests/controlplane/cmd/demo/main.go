// Demo shows in about two minutes how one cluster gives load balancers to two others: real etcd, kube-apiserver
// and kube-proxy in network namespaces, joined by the commands of docs/tenants.md, and a client outside. It exits
// non-zero if something does not hold.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/tests/controlplane"
	"lbd.dev/lbd/tests/lab"
)

func main() {
	lab.Program("\ndemo-tenants", demo)
}

func demo(ctx context.Context) (err error) {
	if err := lab.Usable(); err != nil {
		return err
	}
	fmt.Println("lbd demo: a hub and the clusters of two tenants in network namespaces on this machine; nothing else is touched.")
	fmt.Println("Building lbd, the lab's agent and Kubernetes; the first time Kubernetes takes ten minutes or more ...")
	programs, err := controlplane.Build(ctx)
	if err != nil {
		return err
	}
	bin, err := lab.Build(ctx, true)
	if err != nil {
		return err
	}
	defer bin.Close()
	bin.ProbeEvery = probeEvery
	begin := time.Now()
	fmt.Println("Starting three control planes, seven nodes and four Pods ...")
	l, err := controlplane.NewTenantLab(ctx, bin, programs, "shop", "bank")
	if err != nil {
		return err
	}
	defer func() {
		if dir := os.Getenv("LBD_LAB_LOGS"); err != nil && ctx.Err() == nil && dir != "" {
			err = errors.Join(err, controlplane.KeepLogs(l.Lab, dir))
		}
		err = errors.Join(err, l.Close())
		fmt.Printf("\nCleaned up. %.0f s in all.\n", time.Since(begin).Seconds())
	}()
	s := &story{l: l, shop: l.Tenants[0], bank: l.Tenants[1]}
	introduce(s, programs, time.Since(begin))
	if err := s.play(ctx); err != nil {
		return err
	}
	return s.end()
}

func introduce(s *story, programs *controlplane.Programs, took time.Duration) {
	nodes := func(all []*controlplane.Node) string {
		var names []string
		for _, n := range all {
			names = append(names, n.Name)
		}
		return strings.Join(names, " ")
	}
	fmt.Printf(`
hub, shop and bank are Kubernetes %s, each with etcd and an API server of its own; the nodes
of the hub are %s, those of shop %s, those of bank %s, each with kube-proxy. There is no
kubelet: lbd runs on the hosts, and Pods are servers in namespaces. Ready after %.0f s.
`, programs.Kubernetes, nodes(s.l.HubNodes), nodes(s.shop.Nodes), nodes(s.bank.Nodes), took.Seconds())
}

// row is one line of the table at the end.
type row struct{ what, wanted, measured string }

// end prints the table, and is an error if something did not hold.
func (s *story) end() error {
	fmt.Printf("\n   %-58s %-11s %s\n", "", "wanted", "measured")
	for _, r := range s.rows {
		fmt.Printf("   %-58s %-11s %s\n", r.what, r.wanted, r.measured)
	}
	if len(s.broken) > 0 {
		return fmt.Errorf("%d things did not hold: %s", len(s.broken), strings.Join(s.broken, "; "))
	}
	fmt.Println("\nAll held.")
	return nil
}

// hold notes a figure, and whether it is as wanted.
func (s *story) hold(ok bool, what, wanted, measured string) {
	s.rows = append(s.rows, row{what, wanted, measured})
	if !ok {
		s.broken = append(s.broken, fmt.Sprintf("%s: %s, want %s", what, measured, wanted))
		fmt.Printf("   BROKEN: %s: %s, want %s\n", what, measured, wanted)
	}
}

// wrap breaks a long line of words, indented.
func wrap(words string, width int) string {
	var lines []string
	line := ""
	for w := range strings.FieldsSeq(words) {
		if line != "" && len(line)+1+len(w) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return strings.Join(slices.Concat(lines, []string{line}), "\n      ")
}
