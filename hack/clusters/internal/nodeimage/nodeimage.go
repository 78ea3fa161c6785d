// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeimage makes an image for kind's nodes where none can be pulled: of
// Debian's packages, of the files that kind has for its own images, and of the programs
// that the other clusters of this module are made of. It needs no container engine.
//
// What kind's images have besides, a network of pods and a provisioner of volumes, is not
// in it: the network's configuration, for the one node of a cluster, is whose that is.
package nodeimage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spokelet/spokelet/hack/clusters/image"
	"github.com/spokelet/spokelet/hack/clusters/internal/process"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// cacheName is the name of the images in the cache.
const cacheName = "node-image"

// Image is one that an engine can import.
type Image struct {
	Ref     string   // its name, which changes with its content
	Root    string   // path of a tar archive of its files
	Changes []string // to its configuration, as docker import takes them
}

// ErrUnknown is returned for an image that kubeadm wants and nobody here makes.
var ErrUnknown = errors.New("nothing is known of the image")

// suite is Debian's release: the last one whose systemd boots where control groups are of version 1.
const (
	suite  = "bookworm"
	mirror = "http://deb.debian.org/debian"
)

var (
	//go:embed base.sh
	baseScript string
	//go:embed import.sh
	importScript string
	// What is written below decides the content, too.
	//go:embed nodeimage.go
	source string
)

// packages are those of kind's base image that one node without storage drivers needs.
func packages() []string {
	return []string{
		"systemd", "dbus", "containerd", "runc", "containernetworking-plugins",
		"conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod",
		"bash", "ca-certificates", "curl", "jq", "procps",
	}
}

// proxyPackages are what kube-proxy runs, with their libraries.
func proxyPackages() []string {
	return []string{
		"iptables", "conntrack", "netbase", "libc6", "libxtables12", "libip4tc2", "libip6tc2", "libmnl0", "libnftnl11",
		"libnfnetlink0", "libnetfilter-conntrack3",
	}
}

// Ensure gives the image, made on the first call on this machine, which takes a minute or
// two. It needs root, debootstrap and Debian's mirror then.
func Ensure(ctx context.Context, tools *toolchain.Toolchain) (Image, error) {
	b := &builder{programs: make(map[string]string)}
	if err := b.find(ctx, tools); err != nil {
		return Image{}, fmt.Errorf("node image: %w", err)
	}
	key := b.key()
	dir, err := tools.Keep(ctx, cacheName, key, b.build)
	if err != nil {
		return Image{}, err
	}
	return Image{
		Ref:  "spokelet.io/test/node:" + b.version + "-" + key,
		Root: filepath.Join(dir, "root.tar"),
		Changes: []string{
			`ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`,
			"ENV container=docker", // what systemd knows a container by
		},
	}, nil
}

// builder makes one image.
type builder struct {
	version  string            // of Kubernetes, as in v1.36.0
	kind     string            // directory of kind's files for its base image
	programs map[string]string // paths, by name
	required []string          // images, as kubeadm names them
}

// find asks for all that the image is made of.
func (b *builder) find(ctx context.Context, tools *toolchain.Toolchain) error {
	for _, name := range []string{"kubeadm", "kubelet", "kubectl", "etcd", "coredns", "pause"} {
		program, err := tools.Program(ctx, name)
		if err != nil {
			return err
		}
		b.programs[name] = program
	}
	_, module, err := tools.Module(ctx, "kind")
	if err != nil {
		return err
	}
	b.kind = filepath.Join(module, "images", "base", "files")
	version, err := exec.CommandContext(ctx, b.programs["kubeadm"], "version", "--output=short").Output() //nolint:gosec // ours
	if err != nil {
		return fmt.Errorf("kubeadm version: %w", err)
	}
	b.version = strings.TrimSpace(string(version))
	list := exec.CommandContext(ctx, b.programs["kubeadm"], "config", "images", "list", "--kubernetes-version="+b.version) //nolint:gosec // ours
	images, err := list.Output()
	if err != nil {
		return fmt.Errorf("kubeadm config images list: %w", err)
	}
	b.required = strings.Fields(string(images))
	return known(b.required)
}

// known returns an error for the first image that nobody here makes.
func known(refs []string) error {
	for _, ref := range refs {
		if programs(ref) == "" {
			return fmt.Errorf("%w %s", ErrUnknown, ref)
		}
	}
	return nil
}

// key is over all that decides the content. A program's directory is named by what decides
// the program, and kind's by its version.
func (b *builder) key() string {
	parts := []string{source, baseScript, importScript, b.kind}
	for _, name := range []string{"kubeadm", "kubectl", "etcd", "coredns", "pause"} {
		parts = append(parts, filepath.Base(filepath.Dir(b.programs[name])))
	}
	return toolchain.Key(append(parts, b.required...)...)
}

// build makes the archive of the image's files in a directory.
func (b *builder) build(ctx context.Context, dir string) error {
	if err := removeOlder(dir); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	include := "--include=" + strings.Join(packages(), ",")
	if err := apart(ctx, "", "debootstrap", "--variant=minbase", include, suite, root, mirror); err != nil {
		return err
	}
	if err := b.install(ctx, root); err != nil {
		return err
	}
	if err := inside(ctx, root, baseScript, proxyPackages()...); err != nil {
		return err
	}
	if err := b.load(ctx, root); err != nil {
		return err
	}
	if err := run(ctx, "tar", "--numeric-owner", "-C", root, "-cf", filepath.Join(dir, "root.tar"), "."); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// install copies kind's files and the programs that run on the node itself.
func (b *builder) install(ctx context.Context, root string) error {
	bin := filepath.Join(root, "usr", "bin")
	for _, args := range [][]string{
		{"cp", "-RT", "--no-preserve=mode", filepath.Join(b.kind, "etc"), filepath.Join(root, "etc")}, // a module's files are read-only
		{"cp", "-RT", "--no-preserve=mode", filepath.Join(b.kind, "kind"), filepath.Join(root, "kind")},
		{"install", "-m", "0755", filepath.Join(b.kind, "usr/local/bin/entrypoint"), filepath.Join(root, "usr/local/bin")},
		{"chmod", "-R", "0755", filepath.Join(root, "kind", "bin")},
		{"install", "-m", "0755", filepath.Join(filepath.Dir(b.programs["kubelet"]), "kube"), b.programs["kubectl"], bin},
		{"ln", "-s", "kube", filepath.Join(bin, "kubelet")},
		{"ln", "-s", "kube", filepath.Join(bin, "kubeadm")},
	} {
		if err := run(ctx, args[0], args[1:]...); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, "kind", "version"), []byte(b.version), 0o644) //nolint:gosec // public
}

// load has the image's containerd know the images that kubeadm wants.
func (b *builder) load(ctx context.Context, root string) error {
	specs, err := b.images(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "images")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, spec := range specs {
		if err := image.Write(filepath.Join(dir, name+".tar"), spec); err != nil {
			return err
		}
	}
	args := []string{specs["pause"].Ref}
	for _, ref := range b.required {
		if programs(ref) == "kube" {
			args = append(args, ref)
		}
	}
	return inside(ctx, root, importScript, args...)
}

// component is the last part of an image's name: kube-proxy, for one.
func component(ref string) string {
	name, _, _ := strings.Cut(path.Base(ref), ":")
	return name
}

// programs names what is in an image that kubeadm wants: the four of Kubernetes itself are
// one program, and one image.
func programs(ref string) string {
	switch name := component(ref); name {
	case "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy":
		return "kube"
	case "etcd", "coredns", "pause":
		return name
	}
	return ""
}

// images describes the images, by what is in them.
func (b *builder) images(root string) (map[string]image.Spec, error) {
	specs := make(map[string]image.Spec)
	for _, ref := range b.required {
		name := programs(ref)
		if _, there := specs[name]; there {
			continue
		}
		switch name {
		case "kube":
			files, err := b.kubeFiles(root)
			if err != nil {
				return nil, err
			}
			specs[name] = image.Spec{Ref: ref, Files: files, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
		default:
			specs[name] = image.Spec{
				Ref: ref, Entrypoint: []string{"/" + name}, Env: []string{"PATH=/"},
				Files: []image.File{{Path: "/" + name, Source: b.programs[name]}},
			}
		}
	}
	return specs, nil
}

// kubeFiles are what kube-proxy needs of Debian, and the program under its names.
func (b *builder) kubeFiles(root string) ([]image.File, error) {
	files, err := image.Tree(filepath.Join(root, "proxy"))
	if err != nil {
		return nil, err
	}
	files = append(files, image.File{Path: "/tmp", Mode: 0o777 | os.ModeSticky},
		image.File{Path: "/usr/local/bin/kube", Source: filepath.Join(filepath.Dir(b.programs["kubelet"]), "kube")})
	for _, ref := range b.required {
		if programs(ref) == "kube" {
			files = append(files, image.File{Path: "/usr/local/bin/" + component(ref), Link: "kube"})
		}
	}
	return files, nil
}

// inside runs a script in the root of the image.
func inside(ctx context.Context, root, script string, args ...string) error {
	const proc = "mount -t proc none \"$0/proc\" && exec chroot \"$0\" /bin/bash -s -- \"$@\""
	return apart(ctx, script, append([]string{"sh", "-c", proc, root}, args...)...)
}

// apart runs a program in namespaces where nothing that it starts or mounts outlives it,
// nor it us.
func apart(ctx context.Context, input string, program ...string) error {
	runtime.LockOSThread() // the end of the thread that has started it would be taken for ours
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--mount", "--pid", "--fork", "--kill-child", "--"}, program...)...) //nolint:gosec // ours
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Debian's mirror may be behind a proxy, which the environment names.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	cmd.Stdin = strings.NewReader(input)
	return process.Run(cmd)
}

// run runs a program of the machine.
func run(ctx context.Context, name string, args ...string) error {
	return process.Run(exec.CommandContext(ctx, name, args...)) //nolint:gosec // ours
}

// removeOlder removes the images that were made before the one in a new directory of the
// cache: each change of a program makes one, of half a gigabyte.
func removeOlder(dir string) error {
	older, err := filepath.Glob(filepath.Join(filepath.Dir(dir), cacheName+"-*"))
	for _, old := range older {
		err = errors.Join(err, os.RemoveAll(old))
	}
	return err
}
