package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lbd.dev/lbd/tests/lab"
)

// event is something that happens at a time of the story.
type event struct {
	at   time.Duration
	what string
	do   func(context.Context) error
}

// story is what the pictures show. At its end an address lacks a backend, and one tenant wants
// more than it may have: a dashboard is for seeing that.
func (s *site) story() []event {
	l, nodes, servers := s.Lab, s.Lab.Nodes, s.Lab.Backends
	minute := func(m float64) time.Duration { return time.Duration(m * float64(time.Minute)) }
	return []event{
		{minute(1.5), "m2 loses its link", func(ctx context.Context) error { return l.LinkDown(ctx, &nodes[1].Host) }},
		{minute(2.1), "m2 has it again", func(ctx context.Context) error { return l.LinkUp(ctx, &nodes[1].Host) }},
		{minute(3), "the tenant shop has one Service more", func(ctx context.Context) error { return s.tenantService(ctx, "shop", "cart") }},
		{minute(3.3), "the server of s1 dies", func(context.Context) error { return servers[0].Service.Kill() }},
		{minute(4.2), "it is started again", func(ctx context.Context) error { return l.StartService(ctx, servers[0]) }},
		{minute(4.8), "m1 is drained", func(ctx context.Context) error { return s.lbd.Drain(ctx, l, nodes[0]) }},
		{minute(5.4), "m1 may have addresses again", func(ctx context.Context) error { return s.lbd.Undrain(ctx, l, nodes[0]) }},
		{minute(6), "three Services of another pool", func(ctx context.Context) error { return s.services(ctx, "public", "www", "shop", "blog") }},
		{minute(6.6), "the daemon of m3 is killed", func(context.Context) error { return nodes[2].Kill() }},
		{minute(6.9), "it is started again", func(ctx context.Context) error { return s.lbd.Start(ctx, l, nodes[2]) }},
		{minute(7.6), "two Services more, and the pool is empty", func(ctx context.Context) error { return s.services(ctx, "public", "news", "wiki") }},
		{minute(7.8), "the tenant shop wants more than it may have", func(ctx context.Context) error {
			return errors.Join(s.tenantService(ctx, "shop", "search"), s.tenantService(ctx, "shop", "pay"), s.tenantService(ctx, "shop", "track"))
		}},
		{minute(8), "the server of s3 dies", func(context.Context) error { return servers[2].Service.Kill() }},
		{minute(9), "the end", func(context.Context) error { return nil }},
	}
}

func (s *site) play(ctx context.Context) error {
	begin := time.Now()
	for _, e := range s.story() {
		lab.Pause(ctx, time.Until(begin.Add(e.at)))
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Printf("%5s  %s\n", time.Since(begin).Round(time.Second), e.what)
		if err := e.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
	}
	return nil
}
