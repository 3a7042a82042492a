#!/bin/sh
# compile.sh DIRECTORY: compiles all programs of src into a directory, without what differs between machines and versions of the compiler.
set -e
for order in eb el; do
	for source in src/*.bpf.c; do
		object=$1/$(basename "$source" .bpf.c)_bpf$order.o
		clang -O2 -mcpu=v3 -Wall -Werror -g -target bpf$order -c "$source" -o "$object" \
			-fno-ident -fdebug-prefix-map="$PWD"=. -fdebug-compilation-dir .
		llvm-strip -g "$object"
	done
done
