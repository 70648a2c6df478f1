package controlplane

import (
	"context"
	"fmt"
)

// StartController starts one more controller and waits until it is ready.
func (s *LBD) StartController(ctx context.Context) error {
	kubeconfig, err := s.cp.Kubeconfig(s.cp.address(s.cp.APIServers[0].Host), Controller)
	if err != nil {
		return err
	}
	number := len(s.Controllers)
	http := fmt.Sprintf("127.0.0.1:%d", 7478+number)
	c := &Server{
		Name: fmt.Sprintf("lbd-controller%d", number+1), Host: s.cp.Host, lab: s.cp.Lab,
		argv: []string{s.cp.Lab.Bin.LBD, "controller", "--kubeconfig=" + kubeconfig, "--namespace=" + InstallNamespace, "--http=" + http, fmt.Sprintf("--classless=%v", s.Classless)},
		ready: func(ctx context.Context) error {
			_, err := get(ctx, s.cp.Lab, s.cp.Host, "http://"+http+"/readyz", nil)
			return err
		},
	}
	s.Controllers = append(s.Controllers, c)
	return c.Start(ctx)
}
