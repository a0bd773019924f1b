#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# block-headers.sh SOURCE FOLDER [PATH...]: the block layer's private headers, which an elevator needs and no headers
# package has, into FOLDER/block. SOURCE is a package linux-source-X.Y, or the tarball in it. Its Makefile goes to FOLDER,
# too: it says of which version they are; and so does what else is asked for, such as 'drivers/nvme/host/*.[ch]'.
set -eu
source=$1 folder=$2
shift 2
for path; do
	set -- "$@" "*/$path"
	shift
done

tarball() {
	case $source in
	*.deb) dpkg-deb --fsys-tarfile "$source" | tar -xO --wildcards '*.tar.xz' ;;
	*) cat "$source" ;;
	esac
}

mkdir -p "$folder"
if ! tarball | tar -xJ -C "$folder" --strip-components=1 --no-same-owner --no-wildcards-match-slash --wildcards \
	'*/Makefile' '*/block/*.h' "$@"; then
	echo "fairlane: $source holds no block/*.h${*:+ and $*} of Linux; give a package linux-source-X.Y, or the tarball in it" >&2
	exit 1
fi
