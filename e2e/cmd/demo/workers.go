// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spokelet/spokelet/e2e/env"
)

func workers(ctx context.Context) error {
	// They are asked for first, as there is no demo without them.
	root, err := env.Root()
	if err != nil {
		return err
	}
	b := env.Build{Root: root}
	if _, err := b.Workerd(ctx); err != nil {
		return err
	}
	wrangler, err := b.Wrangler(ctx)
	if err != nil {
		return err
	}
	e, err := raise(ctx)
	if err != nil {
		return err
	}
	if err := serve(ctx, e); err != nil {
		return err
	}
	if err := link(wrangler, filepath.Join(e.Bin, "wrangler")); err != nil {
		return err
	}
	_, err = exec.LookPath("curl")
	s := &sample{transcript: &transcript{env: e}, curl: err == nil}
	for _, act := range []func(context.Context) error{s.offer, s.open, s.deploy, s.allow, s.call, s.second, s.tail, s.back} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	s.next(s.nextLines()...)
	return nil
}

// link has a command be in the folder of the others.
func link(program, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("command %s: %w", filepath.Base(path), err)
	}
	if err := os.Symlink(program, path); err != nil {
		return fmt.Errorf("command %s: %w", filepath.Base(path), err)
	}
	return nil
}

// serve starts the object store, the registry and the operator.
func serve(ctx context.Context, e *env.Env) error {
	fmt.Println("\n# An object store and a registry, in pods of the hub.")
	store, err := e.StoreInHub(ctx)
	if err != nil {
		return err
	}
	images, err := e.RegistryInHub(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s\nhttp://%s\n", store.Endpoint(), images.Address)
	fmt.Println("\n# The operator of worker bundles, installed on the hub with helm.")
	return e.InstallWorkers(ctx, store, images)
}

// sample is the one in examples/workers, deployed and called.
type sample struct {
	*transcript

	curl bool // is installed
}

const (
	caller  = "system:serviceaccount:team-a:caller"
	live    = "/apis/live.spokelet.io/v1alpha1/clusters"
	service = "proxy/api/v1/namespaces/workers-1234/services/worker-hello:http/proxy"

	server = "kubectl config view -o jsonpath='{.clusters[0].cluster.server}'"
	// certificates is the file of those that the hub and the API are verified by.
	certificates = folder + "/ca.crt"
	authorities  = "{ kubectl config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}' | base64 -d; " +
		`kubectl get secret spokelet-workers-api -n spokelet-workers -o jsonpath='{.data.tls\.crt}' | base64 -d; } >` + certificates
	identity  = "TOKEN=$(kubectl create token caller -n team-a)"
	developer = "CLOUDFLARE_API_TOKEN=$(kubectl create token developer -n team-a --audience=spokelet-workers)"

	ready = "kubectl wait workerdeployment/hello -n team-a --for=condition=Ready --timeout=180s"

	project  = " --cwd examples/workers/hello"
	deployed = "wrangler deploy %s/index.js" + project
)

// putLine stores the files of a folder as a version of the sample.
func putLine(dir, version string) string {
	return "make demo-put FROM=examples/workers/hello/" + dir + " TO=1234/hello/" + version
}

// chooseLine asks for a version of the sample.
func chooseLine(version string) string {
	return `kubectl patch workerdeployment hello -n team-a --type=merge -p '{"spec":{"template":{"scriptUrls":["s3://workers/1234/hello/` + version + `"]}}}'`
}

// callLine calls the sample in a cluster.
func (s *sample) callLine(spoke string) string {
	if !s.curl {
		return `kubectl get --as=` + caller + ` --raw "` + live + "/" + spoke + "/" + service + `/?a=20&b=22"`
	}
	return `curl -sSf --cacert ` + certificates + ` --oauth2-bearer "$TOKEN" "$CLUSTERS/` + spoke + `/$HELLO/?a=20&b=22"`
}

// hub plays lines on the hub.
func (s *sample) hub(ctx context.Context, say string, lines ...string) error {
	var steps []step
	for _, line := range lines {
		steps = append(steps, step{say: say, on: s.env.Set.Hub(), line: line})
		say = ""
	}
	return s.play(ctx, steps...)
}

// timed plays lines on the hub, and says how long they took and why.
func (s *sample) timed(ctx context.Context, why string, lines ...string) error {
	start := time.Now()
	if err := s.hub(ctx, "", lines...); err != nil {
		return err
	}
	s.printf("# Both clusters serve it after %.1f seconds%s.\n", time.Since(start).Seconds(), why)
	return nil
}

func (s *sample) offer(ctx context.Context) error {
	return s.hub(ctx, "An administrator offers the clusters, and gives the account 1234 a namespace.",
		"kubectl label managedcluster spoke1 spoke2 workers.spokelet.io/clusters=true",
		"kubectl create namespace team-a",
		"kubectl label namespace team-a workers.spokelet.io/account=1234")
}

// open lets a developer deploy to the account with wrangler.
func (s *sample) open(ctx context.Context) error {
	if err := s.hub(ctx, "He opens the account to wrangler, and to a developer.",
		"kubectl apply -n team-a -f examples/workers/manifests/account.yaml",
		"kubectl create rolebinding wrangler -n team-a --clusterrole=spokelet-workers:account --serviceaccount=spokelet-workers:spokelet-workers-api",
		"kubectl create serviceaccount developer -n team-a",
		"kubectl create rolebinding developer -n team-a --clusterrole=edit --serviceaccount=team-a:developer"); err != nil {
		return err
	}
	hub := s.env.Set.Hub()
	return s.play(ctx,
		step{say: "The developer tells wrangler where the hub is, and who he is.", on: hub, line: "CLOUDFLARE_API_BASE_URL=" + s.env.WorkersAPI(), sets: "CLOUDFLARE_API_BASE_URL"},
		step{say: "Node reads one file of certificates: the hub's and the API's go into it.", on: hub, line: authorities},
		step{on: hub, line: "NODE_EXTRA_CA_CERTS=$PWD/" + certificates, sets: "NODE_EXTRA_CA_CERTS"},
		step{on: hub, line: "CLOUDFLARE_ACCOUNT_ID=1234", sets: "CLOUDFLARE_ACCOUNT_ID"},
		step{on: hub, line: developer, sets: "CLOUDFLARE_API_TOKEN"},
		step{on: hub, line: "CI=true", sets: "CI"}) // wrangler asks nothing
}

func (s *sample) deploy(ctx context.Context) error {
	if err := s.hub(ctx, "He deploys.", fmt.Sprintf(deployed, "1")); err != nil {
		return err
	}
	if err := s.timed(ctx, " from then on; their nodes fetched workerd for it, this once", ready); err != nil {
		return err
	}
	return s.hub(ctx, "The script's secret. It is in no image.",
		"echo only-an-example-key | wrangler secret put SIGNING_KEY"+project, ready,
		"kubectl get workerdeployments,workerbundles -n team-a")
}

// allow lets a ServiceAccount of the hub call the sample.
func (s *sample) allow(ctx context.Context) error {
	return s.hub(ctx, "Who calls it from the hub has the right to: one value of the chart gives it on the hub and in both clusters.",
		"kubectl create serviceaccount caller -n team-a",
		"cat examples/workers/callers.yaml",
		"helm upgrade spokelet-workers charts/spokelet-workers -n spokelet-workers --reuse-values -f examples/workers/callers.yaml --hide-notes",
		"kubectl wait manifestworks -A -l workers.spokelet.io/callers=1234 --for=condition=Applied --timeout=60s")
}

// call prepares what calls need, and calls the sample in both clusters.
func (s *sample) call(ctx context.Context) error {
	hub, say := s.env.Set.Hub(), "It answers in both clusters, neither of which can be dialled."
	if !s.curl {
		s.printf("\n# curl is not installed here: kubectl calls in its place.\n")
		return s.callAll(ctx, say)
	}
	if err := s.play(ctx,
		step{say: say, on: hub, line: "CLUSTERS=$(" + server + ")" + live, sets: "CLUSTERS"},
		step{on: hub, line: "HELLO=" + service, sets: "HELLO"},
		step{on: hub, line: identity, sets: "TOKEN"}); err != nil {
		return err
	}
	return s.callAll(ctx, "")
}

// callAll calls the sample in both clusters.
func (s *sample) callAll(ctx context.Context, say string) error {
	return s.hub(ctx, say, s.callLine("spoke1"), s.callLine("spoke2"))
}

func (s *sample) second(ctx context.Context) error {
	if err := s.hub(ctx, "A second version.", fmt.Sprintf(deployed, "2")); err != nil {
		return err
	}
	if err := s.timed(ctx, " from then on", ready); err != nil {
		return err
	}
	return s.callAll(ctx, "")
}

// tail shows an event of a call.
func (s *sample) tail(ctx context.Context) error {
	if !s.curl {
		return nil
	}
	return s.hub(ctx, "What it does and writes in all clusters, for fifteen seconds.",
		"(sleep 9; "+s.callLine("spoke1")+" >/dev/null; "+s.callLine("spoke2")+" >/dev/null) & timeout -s INT 15 wrangler tail hello --format pretty"+project+" || true")
}

// back goes back to the first version, whose image is still there.
func (s *sample) back(ctx context.Context) error {
	if err := s.hub(ctx, "Back to the version before: its release and its image are still there.", "wrangler rollback -y"+project); err != nil {
		return err
	}
	if err := s.timed(ctx, " from then on; nothing was built", ready); err != nil {
		return err
	}
	if err := s.callAll(ctx, ""); err != nil {
		return err
	}
	return s.hub(ctx, "What wrangler lists is what the hub has.",
		"wrangler deployments list"+project, "kubectl get workerreleases,jobbuilders -n team-a")
}

// nextLines are what a reader may try.
func (s *sample) nextLines() []string {
	lines := []string{
		"kubectl get workerdeployments,workerreleases,jobbuilders,workerbundles -n team-a",
		"kubectl get manifestworks workers-1234 -n spoke1 -o yaml",
	}
	for _, spoke := range s.env.Set.Spokes() {
		lines = append(lines, "kubectl --kubeconfig "+spoke.Kubeconfig+" get pods,services -n workers-1234")
	}
	if s.curl {
		lines = append(lines, "", "CLUSTERS=$("+server+")"+live, "HELLO="+service, identity)
	}
	lines = append(lines, s.callLine("spoke1"),
		"", "# A version of your own: edit examples/workers/hello/2/index.js, and type:", "",
		"export CLOUDFLARE_API_BASE_URL="+s.env.WorkersAPI()+" NODE_EXTRA_CA_CERTS=$PWD/"+certificates+" CLOUDFLARE_ACCOUNT_ID=1234",
		"export "+developer, fmt.Sprintf(deployed, "2"), s.callLine("spoke1"), "wrangler tail hello"+project)
	return append(lines, "", "# The same without wrangler: store it with a key of its own, and name the key.", "",
		putLine("2", "3"), chooseLine("3"), ready)
}
