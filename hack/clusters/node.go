// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/spokelet/spokelet/hack/clusters/image"
	"github.com/spokelet/spokelet/hack/clusters/internal/cgroup"
	"github.com/spokelet/spokelet/hack/clusters/internal/host"
	"github.com/spokelet/spokelet/hack/clusters/internal/lock"
	"github.com/spokelet/spokelet/hack/clusters/internal/network"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// Images that every node has.
const (
	PauseImage   = "spokelet.io/test/pause:latest"
	BusyboxImage = "spokelet.io/test/busybox:latest"
)

// node is the one node of a cluster: containerd, kubelet and kube-proxy beside
// the control plane, in the same network namespace.
type node struct {
	*plane
	plan   network.Plan
	runDir string
	cgroup string
}

func (n *node) socket() string { return filepath.Join(n.runDir, "containerd.sock") }

// prepare makes the control plane's files and the node's.
func (n *node) prepare() error {
	if err := n.plane.prepare(); err != nil {
		return err
	}
	for _, dir := range []string{"containerd", "kubelet", "pods", "cni/conf", "cni/data", "volumeplugins", "registries"} {
		if err := os.MkdirAll(n.path(dir), 0o750); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(n.runDir, 0o711); err != nil { //nolint:gosec // containers' users pass through it
		return err
	}
	if err := cgroup.Create(n.cgroup); err != nil {
		return err
	}
	files := map[string]string{
		n.path("config", "containerd.toml"):           containerdConfig,
		n.path("config", "kubelet.yaml"):              kubeletConfig,
		n.path("config", "kube-proxy.yaml"):           proxyConfig,
		n.path("cni", "conf", "10-spokelet.conflist"): networkConfig,
	}
	for path, text := range files {
		if err := n.render(path, text); err != nil {
			return err
		}
	}
	return nil
}

// settings are what the configuration templates see.
type settings struct {
	Dir, RunDir, Socket, Cgroup, Plugins, Snapshotter, Network, Pause string
	Host, Pods, Proxy, Node, DNS, Registries                          string
	CgroupV1                                                          bool
}

func (n *node) render(path, text string) error {
	snapshotter := "overlayfs"
	if !host.Overlay(n.path()) {
		snapshotter = "native"
	}
	return writeTemplate(path, text, settings{
		Dir: n.path(), RunDir: n.runDir, Socket: n.socket(), Cgroup: n.cgroup,
		Plugins: host.NetworkPlugins(), Snapshotter: snapshotter, Network: n.plan.Namespace, Pause: PauseImage,
		Host: n.host.String(), Pods: n.plan.Pods().String(), Proxy: n.kubeconfig("kube-proxy"), Node: n.nodeName(),
		DNS: n.plan.DNSService().String(), Registries: n.registries(), CgroupV1: !cgroup.Unified(),
	})
}

// writeTemplate writes a configuration file.
func writeTemplate(path, text string, values any) error {
	var out strings.Builder
	if err := template.Must(template.New(path).Parse(text)).Execute(&out, values); err != nil {
		return fmt.Errorf("configuration %s: %w", filepath.Base(path), err)
	}
	return os.WriteFile(path, []byte(out.String()), 0o600)
}

// join starts the node and waits until it runs pods.
func (n *node) join(ctx context.Context, images []string) error {
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		return err
	}
	runtime, err := n.startPath("containerd", containerd, "--config="+n.path("config", "containerd.toml"))
	if err != nil {
		return err
	}
	if err := n.await(ctx, readyProcess{runtime, n.containerdReady}); err != nil {
		return err
	}
	for _, tarball := range images {
		if err := n.importImage(ctx, tarball); err != nil {
			return err
		}
	}
	kubelet, err := n.startKubelet(ctx)
	if err != nil {
		return err
	}
	if _, err := n.start(ctx, "kube-scheduler", n.schedulerArgs()...); err != nil {
		return err
	}
	if _, err := n.start(ctx, "kube-proxy", "--config="+n.path("config", "kube-proxy.yaml")); err != nil {
		return err
	}
	if err := n.awaitPod(ctx); err != nil {
		return n.blame(kubelet, err)
	}
	return nil
}

const (
	// kubeletSocket is of every kubelet of the machine: no flag moves it. Each
	// takes it from the one before, for which nothing here asks.
	kubeletSocket = "/var/lib/kubelet/device-plugins/kubelet.sock"
	kubeletLock   = "/run/lock/spokelet-kubelet.lock"
)

// startKubelet starts it while no other is about to listen: of two that do so at
// once, the second finds the address in use and ends.
func (n *node) startKubelet(ctx context.Context) (*process.Record, error) {
	held, err := lock.Acquire(ctx, kubeletLock, nil)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	if err := os.Remove(kubeletSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	kubelet, err := n.start(ctx, "kubelet", n.kubeletArgs()...)
	if err != nil {
		return nil, err
	}
	return kubelet, n.await(ctx, readyProcess{kubelet, func(context.Context) error {
		_, err := os.Stat(kubeletSocket)
		return err
	}})
}

func (n *node) kubeletArgs() []string {
	return []string{
		"--config=" + n.path("config", "kubelet.yaml"), "--kubeconfig=" + n.kubeconfig("kubelet"),
		"--root-dir=" + n.path("kubelet"), "--cert-dir=" + n.path("kubelet", "pki"),
		"--hostname-override=" + n.nodeName(), "--node-ip=" + n.host.String(),
	}
}

func (n *node) schedulerArgs() []string {
	config := n.kubeconfig("kube-scheduler")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(n.ports.Scheduler), "--leader-elect=false",
	}
}

// ctr runs containerd's own client.
func (n *node) ctr(ctx context.Context, args ...string) error {
	all := append([]string{"--address=" + n.socket(), "--namespace=k8s.io"}, args...)
	if out, err := exec.CommandContext(ctx, "ctr", all...).CombinedOutput(); err != nil { //nolint:gosec // our arguments
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// containerdReady needs both answers: the CRI plugin starts after the others.
func (n *node) containerdReady(ctx context.Context) error {
	if _, err := os.Stat(n.socket()); err != nil {
		return err
	}
	return n.ctr(ctx, "images", "list", "--quiet")
}

func (n *node) importImage(ctx context.Context, tarball string) error {
	return n.ctr(ctx, "images", "import", tarball)
}

// awaitPod waits until the node is ready and a pod on it has reached the API
// server through its Service: then the runtime, the pod network and kube-proxy work.
func (n *node) awaitPod(ctx context.Context) error {
	timeout := n.timeoutFlag()
	name := "node/" + n.nodeName()
	const namespace = "--namespace=kube-system"
	for _, step := range []struct {
		input string
		args  []string
	}{
		{"", []string{"wait", name, "--for=create", timeout}},
		{"", []string{"wait", name, "--for=condition=Ready", timeout}},
		{fmt.Sprintf(testPodFormat, testPodName, BusyboxImage, n.plan.KubernetesService()), []string{"apply", "--filename=-"}},
		{"", []string{"wait", namespace, "pod/" + testPodName, "--for=jsonpath={.status.phase}=Succeeded", timeout}},
		{"", []string{"delete", namespace, "pod/" + testPodName, timeout}},
	} {
		if err := n.kubectl(ctx, step.input, step.args...); err != nil {
			return err
		}
	}
	return nil
}

const (
	testPodName   = "spokelet-check"
	testPodFormat = `apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: kube-system}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: check
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "until nc -w 2 %s 443 </dev/null; do sleep 0.1; done"]
`
)

// writeImages writes the images of every node into the set's directory.
func writeImages(ctx context.Context, tools *toolchain.Toolchain, dir string) ([]string, error) {
	pause, err := tools.Program(ctx, "pause")
	if err != nil {
		return nil, err
	}
	busybox, err := busyboxSpec(ctx)
	if err != nil {
		return nil, err
	}
	specs := map[string]image.Spec{
		"pause.tar": {
			Ref: PauseImage, User: "65532", Entrypoint: []string{"/pause"},
			Files: []image.File{{Path: "/pause", Source: pause}},
		},
		"busybox.tar": busybox,
	}
	var paths []string
	for file, spec := range specs {
		path := filepath.Join(dir, file)
		if err := image.Write(path, spec); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// busyboxSpec describes the image with the machine's busybox.
func busyboxSpec(ctx context.Context) (image.Spec, error) {
	applets, err := busyboxFiles(ctx, host.Busybox())
	return image.Spec{Ref: BusyboxImage, Env: []string{"PATH=/bin"}, Files: applets}, err
}

// busyboxFiles gives busybox and a link for every command that it knows.
func busyboxFiles(ctx context.Context, busybox string) ([]image.File, error) {
	if busybox == "" {
		return nil, fmt.Errorf("busybox: %w", fs.ErrNotExist)
	}
	out, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s --list", busybox), err)
	}
	files := []image.File{
		{Path: "/bin/busybox", Source: busybox},
		{Path: "/tmp", Mode: 0o777 | os.ModeSticky},
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if applet != "busybox" {
			files = append(files, image.File{Path: "/bin/" + applet, Link: "busybox"})
		}
	}
	return files, nil
}
