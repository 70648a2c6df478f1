package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

// lineEvery is the time between two lines of a watch.
const lineEvery = 200 * time.Millisecond

// askAgain is when a watch is asked for again that has ended.
const askAgain = 50 * time.Millisecond

// streamHandler answers with a line now and then until the client goes, as an API
// server answers a watch.
func streamHandler(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		enc, flush := json.NewEncoder(w), http.NewResponseController(w)
		for i := 1; ; i++ {
			if err := errors.Join(enc.Encode(measure.Line{Node: name, Number: i}), flush.Flush()); err != nil {
				return
			}
			if sleep(r.Context(), lineEvery); r.Context().Err() != nil {
				return
			}
		}
	}
}

// watch asks for a long response and reports each of its lines, and its end.
func watch(ctx context.Context, args []string, out *events) error {
	fs := flag.NewFlagSet("watch", flag.ContinueOnError)
	target := fs.String("target", "", "address:port")
	ca := fs.String("ca", "", "certificate file of the authority")
	again := fs.Bool("again", false, "ask again when the response ends")
	if err := fs.Parse(args); err != nil {
		return err
	}
	for {
		err := readLines(ctx, *target, *ca, out)
		if ctx.Err() == nil {
			out.put(measure.Line{At: measure.Now(), Err: err.Error()})
		}
		if sleep(ctx, askAgain); !*again || ctx.Err() != nil {
			return nil
		}
	}
}

func readLines(ctx context.Context, target, ca string, out *events) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := http.Client{Transport: &http.Transport{
		// As clients of an API server do.
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "kubernetes"},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+target+"/watch", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	for r := bufio.NewReader(resp.Body); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		var l measure.Line
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		l.At = measure.Now()
		out.put(l)
	}
}
