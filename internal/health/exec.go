package health

import (
	"context"
	"errors"
	"fmt"

	"lbd.dev/lbd/internal/program"
)

// execProber passes if a program ends with status 0 in time.
type execProber struct {
	command []string
}

func (p execProber) probe(ctx context.Context) error {
	if len(p.command) == 0 {
		return errors.New("exec: the command is empty")
	}
	output, err := program.Run(ctx, p.command)
	if err == nil {
		return nil
	}
	why := clip(err.Error())
	if said := clip(output); said != "" {
		why += ": " + said
	}
	return fmt.Errorf("exec %s: %s", p.command[0], why)
}
