// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

const (
	// WorkersNamespace is where the chart of worker bundles goes.
	WorkersNamespace = "spokelet-workers"

	workersBinary = "spokelet-workers"
	workerdImage  = "spokelet-workerd"
	workersStore  = "store" // the Secret
)

// ErrNoWorkerd is returned where workerd cannot be had: what it comes from is not reached
// from here.
var ErrNoWorkerd = errors.New("workerd cannot be had here")

// Workerd returns the folder of a root file system with workerd and its libraries, and has
// it made where there is none.
func (b Build) Workerd(ctx context.Context) (string, error) {
	return b.fetch(ctx, "workerd.sh", ErrNoWorkerd)
}

// fetch returns the path that a script of hack prints, of what it has fetched. none is the
// error where that cannot be reached.
func (b Build) fetch(ctx context.Context, name string, none error) (string, error) {
	const unreachable = 3 // the script's code
	script := Command{Path: filepath.Join(b.Root, "hack", name), Dir: b.Root}
	out, err := script.Run(ctx)
	if failed, ok := errors.AsType[*Error](err); ok && failed.ExitCode() == unreachable {
		return "", fmt.Errorf("%w: %w", none, err)
	}
	return strings.TrimSpace(out), err
}

// Workers builds the operator of worker bundles and returns its path. It has a module of
// its own, and as helm's process no flavour.
func (b Build) Workers(ctx context.Context) (string, error) {
	return b.link(ctx, "workers", "CGO_ENABLED=0", workersBinary,
		"-ldflags=-s -w -X github.com/spokelet/spokelet/workers/app.Version="+b.Version, "./cmd/"+workersBinary)
}

// WorkerdImage builds the image that scripts are added to: workerd and its libraries alone.
func (b Build) WorkerdImage(ctx context.Context) (Image, error) {
	files, err := b.workerdFiles(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", workerdImage, err)
	}
	return b.write(workerdImage, []string{"/usr/bin/workerd"}, files)
}

// WorkersImage builds the operator's image, in which workerd checks scripts.
func (b Build) WorkersImage(ctx context.Context) (Image, error) {
	files, err := b.workerdFiles(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", workersBinary, err)
	}
	binary, err := b.Workers(ctx)
	if err != nil {
		return Image{}, err
	}
	return b.image(workersBinary, append(files, image.File{Path: "/" + workersBinary, Source: binary, Mode: 0o755}))
}

// workerdFiles are those of the root file system, with their modes.
func (b Build) workerdFiles(ctx context.Context) ([]image.File, error) {
	root, err := b.Workerd(ctx)
	if err != nil {
		return nil, err
	}
	return treeFiles(root)
}

// treeFiles are the files, links and folders below a folder, as they are there.
func treeFiles(root string) ([]image.File, error) {
	var files []image.File
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		file := image.File{Path: strings.TrimPrefix(path, root), Mode: info.Mode() & (fs.ModePerm | fs.ModeSticky)}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			file.Link, err = os.Readlink(path)
		case info.Mode().IsRegular():
			file.Source = path
		case !info.IsDir():
			err = fmt.Errorf("%s: %w", path, errors.ErrUnsupported)
		}
		files = append(files, file)
		return err
	})
	return files, err
}

// InstallWorkers installs the operator of worker bundles on the hub with helm, for scripts
// of a store and images of a registry, and waits until it is ready.
func (e *Env) InstallWorkers(ctx context.Context, store *Store, images *ImageRegistry, extra ...string) error {
	runtime, err := e.Build.WorkerdImage(ctx)
	if err != nil {
		return err
	}
	workerd, err := images.Push(ctx, runtime, workerdImage+":"+e.Build.Tag())
	if err != nil {
		return err
	}
	img, err := e.Build.WorkersImage(ctx)
	if err != nil {
		return err
	}
	hub := e.Set.Hub()
	if err := hub.LoadImage(ctx, img.Archive); err != nil {
		return fmt.Errorf("operator of worker bundles: %w", err)
	}
	if err := e.restricted(ctx, hub, WorkersNamespace); err != nil {
		return err
	}
	if err := e.secret(ctx, WorkersNamespace, workersStore, map[string]string{"accessKey": store.AccessKey, "secretKey": store.SecretKey}); err != nil {
		return err
	}
	if err := e.workersCertificate(ctx); err != nil {
		return err
	}
	args := []string{"upgrade", "--install", workersBinary, e.chart(workersBinary), "--namespace", WorkersNamespace,
		"--set", "image.tag=" + e.Build.Tag(),
		"--set", "store.endpoint=" + store.Endpoint(), "--set", "store.region=" + store.Region(),
		"--set", "store.bucket=" + store.Bucket, "--set", "store.credentialsSecret=" + workersStore,
		"--set", "registry.push=" + images.Ref("workers"), "--set", "registry.runtime=" + workerd, "--set", "registry.insecure=true",
		"--set", "api.enabled=true", "--set", "api.tlsSecret=" + workersAPI,
		"--set", "api.service.type=NodePort", "--set", fmt.Sprintf("api.service.nodePort=%d", workersAPINodePort),
		"--wait", "--timeout", helmTimeout}
	return e.say(e.Helm(hub).Run(ctx, append(args, extra...)...))
}

// UninstallWorkers removes the operator, and what was made for it.
func (e *Env) UninstallWorkers(ctx context.Context) error {
	if err := e.say(e.Helm(e.Set.Hub()).Run(ctx, "uninstall", workersBinary, "--namespace", WorkersNamespace, "--wait", "--timeout", helmTimeout)); err != nil {
		return err
	}
	return e.say(e.Kubectl(e.Set.Hub()).Run(ctx, "delete", "namespace", WorkersNamespace, "--timeout", helmTimeout))
}

// secret writes a Secret of the hub with the fields of a value. Its input is no argument,
// which others of this machine could read.
func (e *Env) secret(ctx context.Context, namespace, name string, values any) error {
	return e.secretOf(ctx, namespace, name, "Opaque", values)
}

func (e *Env) secretOf(ctx context.Context, namespace, name, kind string, values any) error {
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": kind,
		"metadata": map[string]string{"name": name, "namespace": namespace}, "stringData": values,
	})
	if err != nil {
		return fmt.Errorf("secret %s: %w", name, err)
	}
	_, err = e.Kubectl(e.Set.Hub()).RunInput(ctx, bytes.NewReader(manifest), "apply", "-f", "-")
	return err
}
