// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
)

// ErrNoWrangler is returned where wrangler cannot be had: npm is not reached from here.
var ErrNoWrangler = errors.New("wrangler cannot be had here")

const (
	// workersAPI is the name of the API that wrangler calls, and of the Secret with its
	// certificate.
	workersAPI         = "spokelet-workers-api"
	workersAPINodePort = 30843
)

// Wrangler returns the program, and has it installed where it is not.
func (b Build) Wrangler(ctx context.Context) (string, error) {
	return b.fetch(ctx, "wrangler.sh", ErrNoWrangler)
}

// WorkersAPI is the URL that wrangler calls, of the API that InstallWorkers installs.
func (e *Env) WorkersAPI() string {
	return "https://" + e.nodeAddress(workersAPINodePort) + "/client/v4"
}

// WorkersCA is the path of the certificate that the API's is verified by. Each set of clusters
// has its own.
func (e *Env) WorkersCA() string { return filepath.Join(e.Bin, e.Set.Name(), "workers-api.crt") }

// workersCertificate makes the API's certificate and keeps it in a Secret.
func (e *Env) workersCertificate(ctx context.Context) error {
	host, _, err := net.SplitHostPort(e.nodeAddress(workersAPINodePort))
	if err != nil {
		return fmt.Errorf("certificate of the workers API: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, []string{workersAPI + "." + WorkersNamespace + ".svc"})
	if err != nil {
		return fmt.Errorf("certificate of the workers API: %w", err)
	}
	err = os.MkdirAll(filepath.Dir(e.WorkersCA()), 0o755)
	if err == nil {
		err = os.WriteFile(e.WorkersCA(), certificate, 0o600)
	}
	if err != nil {
		return fmt.Errorf("certificate of the workers API: %w", err)
	}
	return e.secretOf(ctx, WorkersNamespace, workersAPI, "kubernetes.io/tls", map[string]string{"tls.crt": string(certificate), "tls.key": string(key)})
}

// WranglerCommand returns a command that runs wrangler as who has a token, in a folder that
// it may write, which is its home, too.
func (e *Env) WranglerCommand(program, dir, account, token string) Command {
	return Command{Path: program, Dir: dir, Env: []string{
		"CLOUDFLARE_API_BASE_URL=" + e.WorkersAPI(), "NODE_EXTRA_CA_CERTS=" + e.WorkersCA(),
		"CLOUDFLARE_ACCOUNT_ID=" + account, "CLOUDFLARE_API_TOKEN=" + token,
		// Of a call a fifth is for compiling wrangler.
		"NODE_COMPILE_CACHE=" + filepath.Join(e.Bin, "wrangler-compiled"),
		"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "CI=1", "NO_COLOR=1", "WRANGLER_SEND_METRICS=false", "WRANGLER_HIDE_BANNER=true",
	}}
}
