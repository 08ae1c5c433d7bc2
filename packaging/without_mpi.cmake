# Included by cpack before it makes a package: CPackDeb's dpkg-shlibdeps leaves Open MPI out.
set(SHLIBDEPS_EXECUTABLE ${CMAKE_CURRENT_LIST_DIR}/shlibdeps_without_mpi)
